# `cpack -G DEB` and `cpack -G TGZ`; scripts/package calls both.
set(CPACK_PACKAGE_NAME evalrun)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR "The evalrun authors")
set(CPACK_PACKAGE_CONTACT "The evalrun authors <evalrun@localhost.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "benchmark harness for lossless LLM inference acceleration")
set(CPACK_PACKAGE_DESCRIPTION
"Measures how much faster speculative decoding makes a language model, and
whether the output is still the model's own. Every method runs on the same
engine, with the same prompts, decode loop and clock as plain decoding; every
figure has an interval; every output is compared token by token.")
set(CPACK_PACKAGE_FILE_NAME evalrun-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS ${CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS})
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_files.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The sandbox of generated programs; `evalrun data model`.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "bubblewrap, python3-pip")
include(CPack)
