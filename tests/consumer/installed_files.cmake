# The installed tool starts, and no installed library or program looks for others beyond its own prefix and LibTorch:
#   cmake -DPREFIX=dir -DTORCH=folder -DVERSION=x.y.z -P installed_files.cmake
file(GLOB_RECURSE libraries ${PREFIX}/libulp*.so.*)
list(LENGTH libraries count)
if(count LESS 2)
  message(FATAL_ERROR "expected libulp and libulp_runtime under ${PREFIX}, found: ${libraries}")
endif()
foreach(file ${libraries} ${PREFIX}/bin/ulp)
  execute_process(COMMAND readelf -d ${file} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
  if(dynamic MATCHES "\\((RPATH|RUNPATH)\\)[^[]*\\[([^]]*)\\]")
    string(REPLACE ":" ";" folders "${CMAKE_MATCH_2}")
    foreach(folder ${folders})
      if(NOT folder MATCHES "^[$]ORIGIN" AND NOT folder STREQUAL TORCH)
        message(SEND_ERROR "${file} looks for libraries in ${folder}")
      endif()
    endforeach()
  endif()
endforeach()

execute_process(COMMAND ${PREFIX}/bin/ulp --version OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT version STREQUAL "ulp ${VERSION}")
  message(SEND_ERROR "expected 'ulp ${VERSION}' of the installed tool, got '${version}'")
endif()
