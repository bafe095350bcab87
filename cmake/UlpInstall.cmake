# Installation and the package configuration found by find_package(ulp).
