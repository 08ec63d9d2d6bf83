# What `cmake --install` puts where. The program looks for its files from where it lies itself
# (engine/base/install_paths.h), so the places are fixed and PREFIX can be moved.
#
#   PREFIX/bin/evalrun
#   PREFIX/libexec/evalrun     evalrun-box-init, get-model
#   PREFIX/share/evalrun       adapters/, suites/ (as examples: they are compiled in)
#   PREFIX/share/...           man pages, completions, documents

# A build folder looks the same, by links to the sources.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/evalrun ${CMAKE_BINARY_DIR}/libexec)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/methods/adapters ${CMAKE_BINARY_DIR}/share/evalrun/adapters SYMBOLIC)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/scripts ${CMAKE_BINARY_DIR}/libexec/evalrun SYMBOLIC)

# Pages and completions are what the program says about itself.
set(shell ${CMAKE_BINARY_DIR}/shell)
add_custom_command(
  OUTPUT ${shell}/done
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${shell}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${shell}
  COMMAND $<TARGET_FILE:evalrun> man --all ${shell}/man1
  COMMAND $<TARGET_FILE:evalrun> completion bash > ${shell}/evalrun
  COMMAND $<TARGET_FILE:evalrun> completion zsh > ${shell}/_evalrun
  COMMAND $<TARGET_FILE:evalrun> completion fish > ${shell}/evalrun.fish
  COMMAND ${CMAKE_COMMAND} -E touch ${shell}/done
  DEPENDS evalrun
  COMMENT "Writing man pages and completions"
  VERBATIM)
add_custom_target(evalrun_shell ALL DEPENDS ${shell}/done)

# Folders are everybody's to read, whatever the umask of who installs.
set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
install(TARGETS evalrun RUNTIME DESTINATION bin)
install(TARGETS evalrun-box-init RUNTIME DESTINATION libexec/evalrun)
install(PROGRAMS scripts/get-model DESTINATION libexec/evalrun)
install(FILES scripts/fetch.sh DESTINATION libexec/evalrun)
install(DIRECTORY methods/adapters runners/suites DESTINATION share/evalrun)
install(DIRECTORY ${shell}/man1 DESTINATION share/man)
install(FILES ${shell}/evalrun DESTINATION share/bash-completion/completions)
install(FILES ${shell}/_evalrun DESTINATION share/zsh/site-functions)
install(FILES ${shell}/evalrun.fish DESTINATION share/fish/vendor_completions.d)
install(FILES README.md CHANGELOG.md CITATION.cff LICENSE cmake/copyright DESTINATION share/doc/evalrun)
install(DIRECTORY docs DESTINATION share/doc/evalrun)

if(EVALRUN_STATIC)
  target_link_options(evalrun PRIVATE -static-libstdc++ -static-libgcc)
  set_target_properties(evalrun PROPERTIES INSTALL_RPATH "\$ORIGIN/../lib/evalrun")
  foreach(library divsufsort divsufsort64)
    find_library(EVALRUN_SHARED_${library} ${library} REQUIRED)
    file(REAL_PATH ${EVALRUN_SHARED_${library}} real)
    install(FILES ${real} DESTINATION lib/evalrun RENAME lib${library}.so.3)
  endforeach()
endif()
