# The target `docs`: the public headers as HTML in <build>/docs/html, by Doxygen; a warning is an error.
if(NOT ULP_INSTALL)
  return()
endif()
get_property(headers GLOBAL PROPERTY ULP_PUBLIC_HEADERS)
list(APPEND headers ${PROJECT_SOURCE_DIR}/ulp/version.h ${PROJECT_SOURCE_DIR}/ulp/ulp_runtime.h)
list(TRANSFORM headers REPLACE "(.+)" "\"\\1\"")
list(JOIN headers " " ULP_DOCS_INPUT)
configure_file(${PROJECT_SOURCE_DIR}/cmake/Doxyfile.in ${PROJECT_BINARY_DIR}/docs/Doxyfile @ONLY)
add_custom_target(docs COMMAND ${CMAKE_COMMAND} -DFOLDER=${PROJECT_BINARY_DIR}/docs -P ${PROJECT_SOURCE_DIR}/cmake/docs.cmake
                  COMMENT "Writing ${PROJECT_BINARY_DIR}/docs/html/index.html" VERBATIM)
