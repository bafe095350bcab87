# Files that compile as one. What a file reads of LibTorch costs 2 to 15 s before its own code (bench/notes/build-time.md),
# and is paid once by all files of a group.
option(ULP_UNITY "Compile several files as one: a build from nothing takes half the time, one changed file takes longer" ON)

# ulp_unity(target size): the C++ files of the target compile `size` at a time, those with a property
# SKIP_PRECOMPILE_HEADERS or SKIP_UNITY_BUILD_INCLUSION alone. Names in unnamed namespaces are unique in the target.
function(ulp_unity target size)
  if(NOT ULP_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_source_file_property(plain ${source} SKIP_PRECOMPILE_HEADERS)
    if(plain)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  # GCC warns of hidden types in members everywhere but in the file that it compiles.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
