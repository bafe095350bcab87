# Configures ulp without its parts and reads from the install rules that their headers are left out, and the others are not:
# cmake -DSOURCE=dir -DBINARY=dir -DTORCH=prefix -DCXX=compiler -P left_out.cmake
file(REMOVE_RECURSE ${BINARY})
set(parts distill distributed exchange fp8 memory prune)
foreach(part ${parts})
  string(TOUPPER ${part} option)
  list(APPEND options -DULP_WITH_${option}=OFF)
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -G Ninja -S ${SOURCE} -B ${BINARY} -DCMAKE_PREFIX_PATH=${TORCH} -DCMAKE_CXX_COMPILER=${CXX}
                        -DULP_BUILD_TOOL=OFF -DULP_BUILD_TESTS=OFF -DULP_BUILD_BENCHMARKS=OFF -DULP_BUILD_EXAMPLES=OFF ${options}
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(READ ${BINARY}/cmake_install.cmake rules)
foreach(part ${parts} watch)
  string(FIND "${rules}" "/ulp/${part}.h\"" at)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "ulp/${part}.h is installed by a build without it")
  endif()
endforeach()
foreach(room ulp amp graph io lower models quant runtime train)
  string(FIND "${rules}" "/ulp/${room}.h\"" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "ulp/${room}.h is not installed")
  endif()
endforeach()
