// Marks what a shared library of ulp shows to its users; everything else is hidden.
#pragma once

#define ULP_API __attribute__((visibility("default")))
