# Sets ULP_VERSION to what ulp/version.h says, the one place where the version stands, and ULP_SOVERSION, the part of it
# that the names of the libraries have.
set(ULP_VERSION)
foreach(part MAJOR MINOR PATCH)
  file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../ulp/version.h line REGEX "#define ULP_VERSION_${part} [0-9]+")
  if(NOT line MATCHES "${part} ([0-9]+)$")
    message(FATAL_ERROR "expected a number after ULP_VERSION_${part} in ulp/version.h, got '${line}'")
  endif()
  list(APPEND ULP_VERSION ${CMAKE_MATCH_1})
endforeach()
# Before 1.0 a new minor version may change what programs were linked against.
list(GET ULP_VERSION 0 ULP_SOVERSION)
if(ULP_SOVERSION EQUAL 0)
  list(GET ULP_VERSION 1 minor)
  string(APPEND ULP_SOVERSION ".${minor}")
endif()
list(JOIN ULP_VERSION "." ULP_VERSION)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../ulp/version.h)
