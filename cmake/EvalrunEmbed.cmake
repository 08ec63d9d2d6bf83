# Compiles text files into a library, so that the binary needs no files beside it.
#
#   evalrun_embed(<target> HEADER <include> NAMESPACE <ns> FUNCTION <name> BASE <dir> FILES <files...>)
#
# adds to <target> a generated source that defines, in <ns>,
#   std::span<const base::EmbeddedFile> <name>();
# declared by <include> (engine/base/embedded_file.h). Names are relative to BASE. Files must be UTF-8 text without NUL and without the delimiter )EVALRUN".
function(evalrun_embed target)
  cmake_parse_arguments(E "" "HEADER;NAMESPACE;FUNCTION;BASE" "FILES" ${ARGN})
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${target}_${E_FUNCTION}.cpp)
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/embed_text.cmake)
  list(JOIN E_FILES "|" joined)  # a list would be split on its way through the command line
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DHEADER=${E_HEADER} -DNAMESPACE=${E_NAMESPACE}
            -DFUNCTION=${E_FUNCTION} -DBASE=${E_BASE} "-DFILES=${joined}" -P ${script}
    DEPENDS ${E_FILES} ${script}
    COMMENT "Embedding files into ${target}"
    VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
