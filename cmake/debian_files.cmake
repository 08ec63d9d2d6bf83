# Before `cpack -G DEB` packs: what Debian asks of a package's files and archives elsewhere do not need.
# Compressed manual pages, this version's changes in Debian's form, and lintian's override.
if(NOT CPACK_GENERATOR STREQUAL DEB)
  return()
endif()
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
set(changelog ${share}/doc/evalrun/changelog)

# "## VERSION" to the next "## ", indented, between Debian's first and last line.
file(READ ${share}/doc/evalrun/CHANGELOG.md text)
string(FIND "${text}" "\n## ${CPACK_PACKAGE_VERSION}\n" begin)
if(begin EQUAL -1)
  message(FATAL_ERROR "CHANGELOG.md has no section ${CPACK_PACKAGE_VERSION}")
endif()
string(SUBSTRING "${text}" ${begin} -1 text)
string(REGEX REPLACE "^\n## [^\n]*\n+" "" text "${text}")
string(FIND "${text}" "\n## " end)
string(SUBSTRING "${text}" 0 ${end} text)
string(STRIP "${text}" text)
# Lines of at most 80 columns: paragraphs become one line first; -t keeps the indentation of lists.
string(REGEX REPLACE "([^\n])\n([^-# \n])" "\\1 \\2" text "${text}")
file(WRITE ${changelog} "${text}\n")
execute_process(COMMAND fmt -t -w 78 ${changelog} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "\n([^\n])" "\n  \\1" text "\n${text}")
string(TIMESTAMP today "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${changelog}
"${CPACK_PACKAGE_NAME} (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium
${text}
 -- ${CPACK_PACKAGE_CONTACT}  ${today}
")

file(GLOB pages ${share}/man/man1/*.1)
execute_process(COMMAND gzip -9n ${pages} ${changelog} COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${share}/lintian/overrides/evalrun
"# The first process in a sandbox that may hold no libraries.
evalrun: statically-linked-binary [usr/libexec/evalrun/evalrun-box-init]
")
