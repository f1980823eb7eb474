# SPDX-License-Identifier: Apache-2.0
# Run at each build (cmake -P): writes the commit that is being built into OUTPUT, if it changed.
execute_process(COMMAND git describe --always --dirty --abbrev=7 --exclude=*
  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(text "#pragma once\n#define K3_COMMIT \"${commit}\"\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUTPUT} "${text}")
endif()
