# cmake -DPROGRAMS=a,b -DRUN=script -DSTRIP=strip -DOUT=folder -P gpu_bundle.cmake
# What a machine with nothing but the GPU's driver needs: programs (stripped), the libraries beside the C
# library's they were linked with, and the script that runs them.
string(REPLACE "," ";" programs "${PROGRAMS}")
file(REMOVE_RECURSE ${OUT})
file(MAKE_DIRECTORY ${OUT}/bin ${OUT}/lib)
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs}
     RESOLVED_DEPENDENCIES_VAR libraries UNRESOLVED_DEPENDENCIES_VAR missing
     PRE_EXCLUDE_REGEXES "^ld-linux" "^lib((anl|c|dl|m|pthread|resolv|rt|util)\\.so|nsl\\.so\\.1$)")
if(missing)
  message(FATAL_ERROR "libraries not found: ${missing}")
endif()
foreach(library IN LISTS libraries)
  get_filename_component(name ${library} NAME)
  file(REAL_PATH ${library} real)
  file(COPY_FILE ${real} ${OUT}/lib/${name})
endforeach()
foreach(program IN LISTS programs)
  get_filename_component(name ${program} NAME)
  execute_process(COMMAND ${STRIP} -o ${OUT}/bin/${name} ${program} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(COPY ${RUN} DESTINATION ${OUT})
# The same in one file, a third of the size, to carry it somewhere.
get_filename_component(folder ${OUT} DIRECTORY)
get_filename_component(name ${OUT} NAME)
execute_process(COMMAND ${CMAKE_COMMAND} -E tar czf ${name}.tar.gz ${name} WORKING_DIRECTORY ${folder}
                COMMAND_ERROR_IS_FATAL ANY)
