# Configures, builds and runs a consumer project:
#   cmake -DPROJECT=dir -DWORK=dir -DRUN=program [-DARGS=...] [-DEXPECT=text] [-DINSTALL_FROM=build -DCOMPONENTS=a,b]
#         [-DOPTIONS=...] -P consume.cmake
# Lists are separated by commas. Nothing is optimized: only that it compiles, links and runs is of interest.
file(REMOVE_RECURSE ${WORK})
if(INSTALL_FROM)
  string(REPLACE "," ";" components "${COMPONENTS}")
  foreach(component ${components})
    execute_process(COMMAND ${CMAKE_COMMAND} --install ${INSTALL_FROM} --prefix ${WORK}/prefix --component ${component}
                    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  list(APPEND options -DCMAKE_PREFIX_PATH=${WORK}/prefix)
endif()
string(REPLACE "," ";" given "${OPTIONS}")
string(REPLACE "," ";" arguments "${ARGS}")
execute_process(COMMAND ${CMAKE_COMMAND} -S ${PROJECT} -B ${WORK}/build -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG= ${options} ${given}
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/build/${RUN} ${arguments} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
message(STATUS "${output}")
if(NOT output MATCHES "${EXPECT}")
  message(FATAL_ERROR "expected '${EXPECT}' in the output of ${RUN}")
endif()
