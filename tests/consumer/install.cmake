# Installs components into an empty prefix: cmake -DFROM=build -DPREFIX=dir -DCOMPONENTS=a,b -P install.cmake
file(REMOVE_RECURSE ${PREFIX})
string(REPLACE "," ";" components "${COMPONENTS}")
foreach(component ${components})
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${FROM} --prefix ${PREFIX} --component ${component}
                  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
