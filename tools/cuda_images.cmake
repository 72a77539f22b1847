# cuda_images.cmake: the device code. CUDA's compiler is found here, the images that the library
# embeds are listed here, and each becomes one custom command (CMake's own CUDA language is not used:
# a machine without CUDA must configure too). Sets BRIM_NVCC_FOUND, BRIM_IMAGE_TABLE (a source for
# the library) and, where nvcc was found, brim_add_cuda_program().
#
#   BRIM_CUDA         AUTO: images where nvcc is found; ON: an error without it; OFF: none
#   BRIM_CUDA_IMAGES  a folder of images built elsewhere (BUILD/cuda of another build): none is
#                     compiled here. Sanitizer builds use the release build's.
#   BRIM_CUDA_ONLY    a regular expression; only images NAME.ARCH that match are built (development)
#   BRIM_CUDA_FLAGS   further options for nvcc, e.g. -lineinfo
set(BRIM_CUDA AUTO CACHE STRING "device code: AUTO, ON or OFF")
set(BRIM_CUDA_IMAGES "" CACHE PATH "a folder of device images built elsewhere")
set(BRIM_CUDA_ONLY "" CACHE STRING "build the device images NAME.ARCH that match this alone")
set(BRIM_CUDA_FLAGS "" CACHE STRING "further options for nvcc")
set(BRIM_NVCC_LEAST 12.4)
# CUDA programs that run on a device directly (test/gpu, bench/peers) are for the one that we have.
set(BRIM_CUDA_PROGRAM_ARCH arch=compute_90a,code=sm_90a)

# ---- the images: name | source in src/kernels/cuda | type | head size | rows | definitions ----
set(BRIM_IMAGE_LIST "probe|probe.cu|F32|0|0|")
foreach(type BF16 F16)
  string(TOLOWER ${type} lower)
  string(COMPARE EQUAL ${type} BF16 is_bf16)
  foreach(head 64 128)
    foreach(rows 1 8)
      list(APPEND BRIM_IMAGE_LIST "resident_${lower}_hs${head}_r${rows}|resident.cu|${type}|${head}|${rows}|-DBRIM_TYPE_BF16=${is_bf16} -DBRIM_HEAD_SIZE=${head} -DBRIM_ROWS=${rows}")
    endforeach()
  endforeach()
endforeach()
# ---- each is built for: arch | least capability | exactly that capability | suffix | options ----
set(BRIM_IMAGE_TARGETS
  "sm_90a|90|1|cubin|-cubin -gencode arch=compute_90a,code=sm_90a -Xptxas -v"
  "compute_80|80|0|ptx|-ptx -arch=compute_80")

# ---- the compiler ----
set(BRIM_NVCC_FOUND OFF)
set(why "BRIM_CUDA is ${BRIM_CUDA}")
if(NOT BRIM_CUDA STREQUAL OFF AND UNIX AND NOT APPLE)
  find_program(BRIM_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin
    PATHS /usr/local/cuda/bin /opt/cuda/bin)
  set(why "nvcc was not found (PATH, CUDA_HOME, /usr/local/cuda/bin; tools/cuda_toolchain.sh fetches one)")
  # The one that was fetched serves where that one is too old or broken.
  set(fetched ${CMAKE_BINARY_DIR}/cuda_toolchain/nvidia/cu13/bin/nvcc)
  if(NOT EXISTS ${fetched})
    set(fetched "")
  endif()
  foreach(candidate ${BRIM_NVCC} ${fetched})
    if(candidate AND NOT BRIM_NVCC_FOUND)
      set(nvcc_says "")
      execute_process(COMMAND ${candidate} --version OUTPUT_VARIABLE nvcc_says ERROR_QUIET)
      string(REGEX MATCH "V([0-9]+\\.[0-9]+\\.[0-9]+)" unused "${nvcc_says}")
      set(nvcc_version "${CMAKE_MATCH_1}")
      set(why "${candidate} is version '${nvcc_version}': ${BRIM_NVCC_LEAST} is the least")
      if(nvcc_version VERSION_GREATER_EQUAL BRIM_NVCC_LEAST)
        set(BRIM_NVCC_FOUND ON)
        set(BRIM_NVCC ${candidate} CACHE FILEPATH "CUDA's compiler" FORCE)
      endif()
    endif()
  endforeach()
endif()
if(BRIM_CUDA STREQUAL ON AND NOT BRIM_NVCC_FOUND)
  message(FATAL_ERROR "BRIM_CUDA is ON, but ${why}")
endif()
# ccache takes an nvcc command that makes one image if it also says -c.
set(nvcc_launcher "")
if(CMAKE_C_COMPILER_LAUNCHER MATCHES "ccache$")
  set(nvcc_launcher ${CMAKE_C_COMPILER_LAUNCHER})
endif()
separate_arguments(nvcc_extra UNIX_COMMAND "${BRIM_CUDA_FLAGS}")
set(nvcc_common -O3 -std=c++17 -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_SOURCE_DIR}/src
  -I${CMAKE_SOURCE_DIR}/src/kernels/cuda ${nvcc_extra})
set(nvcc_log ${CMAKE_SOURCE_DIR}/tools/nvcc_log.sh)

# ---- compile: BUILD/cuda/NAME.ARCH.cubin (or .ptx), its .log with what ptxas says of it ----
set(image_folder ${CMAKE_BINARY_DIR}/cuda)
set(image_files "")
set(manifest "")
if(BRIM_CUDA_IMAGES)
  set(image_folder ${BRIM_CUDA_IMAGES})
  if(NOT EXISTS ${image_folder}/manifest.txt)
    message(FATAL_ERROR "BRIM_CUDA_IMAGES is ${image_folder}, which has no manifest.txt")
  endif()
  file(STRINGS ${image_folder}/manifest.txt lines)
  foreach(line ${lines})
    string(REGEX MATCH "^[^|]+" file "${line}")
    list(APPEND image_files ${image_folder}/${file})
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${image_folder}/manifest.txt)
elseif(BRIM_NVCC_FOUND)
  file(GLOB device_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cuh
    ${CMAKE_SOURCE_DIR}/src/kernels/cuda/resident*.h ${CMAKE_SOURCE_DIR}/src/kernels/cuda/probe*.h)
  # So that a source that appears is noticed.
  file(GLOB device_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
  foreach(image ${BRIM_IMAGE_LIST})
    string(REPLACE "|" ";" field "${image}")
    list(GET field 0 name)
    list(GET field 1 source)
    list(GET field 2 type)
    list(GET field 3 head)
    list(GET field 4 rows)
    list(GET field 5 definitions)
    separate_arguments(definitions UNIX_COMMAND "${definitions}")
    set(source ${CMAKE_SOURCE_DIR}/src/kernels/cuda/${source})
    foreach(target ${BRIM_IMAGE_TARGETS})
      string(REPLACE "|" ";" field "${target}")
      list(GET field 0 arch)
      list(GET field 1 capability)
      list(GET field 2 exact)
      list(GET field 3 suffix)
      list(GET field 4 options)
      separate_arguments(options UNIX_COMMAND "${options}")
      if(NOT EXISTS ${source} OR (BRIM_CUDA_ONLY AND NOT "${name}.${arch}" MATCHES "${BRIM_CUDA_ONLY}"))
        continue()
      endif()
      set(output ${image_folder}/${name}.${arch}.${suffix})
      # What nvcc says it has read; where CMake can't use that, all headers.
      set(depends ${device_headers})
      if(CMAKE_GENERATOR STREQUAL Ninja OR CMAKE_VERSION VERSION_GREATER_EQUAL 3.20)
        set(depends DEPFILE ${output}.d)
      endif()
      file(RELATIVE_PATH relative ${CMAKE_BINARY_DIR} ${output})
      add_custom_command(OUTPUT ${output} BYPRODUCTS ${output}.log
        COMMAND sh ${nvcc_log} ${output}.log ${nvcc_launcher} ${BRIM_NVCC} -c ${options} ${nvcc_common}
                ${definitions} -MD -MF ${output}.d -MT ${relative} -o ${output} ${source}
        DEPENDS ${source} ${nvcc_log} ${depends}
        COMMENT "Device image ${name} for ${arch}" VERBATIM)
      list(APPEND image_files ${output})
      string(APPEND manifest "${name}.${arch}.${suffix}|${name}|${arch}|${capability}|${exact}|${type}|${head}|${rows}\n")
    endforeach()
  endforeach()
endif()
if(NOT BRIM_CUDA_IMAGES)
  file(MAKE_DIRECTORY ${image_folder})
  file(WRITE ${image_folder}/manifest.new "${manifest}")
  configure_file(${image_folder}/manifest.new ${image_folder}/manifest.txt COPYONLY)
endif()

# ---- embed ----
set(BRIM_IMAGE_TABLE ${CMAKE_BINARY_DIR}/cuda_image_table.c)
add_custom_command(OUTPUT ${BRIM_IMAGE_TABLE}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${image_folder} -DOUT=${BRIM_IMAGE_TABLE}
          -P ${CMAKE_SOURCE_DIR}/tools/embed_images.cmake
  DEPENDS ${image_files} ${image_folder}/manifest.txt ${CMAKE_SOURCE_DIR}/tools/embed_images.cmake
  COMMENT "Table of device images" VERBATIM)
list(LENGTH image_files image_count)
if(BRIM_CUDA_IMAGES)
  message(STATUS "Device code: ${image_count} images from ${image_folder}")
elseif(NOT BRIM_NVCC_FOUND)
  message(STATUS "Device code: none, ${why}")
else()
  message(STATUS "Device code: ${image_count} images by nvcc ${nvcc_version} (${BRIM_NVCC})")
endif()

# brim_add_cuda_program(GROUP NAME SOURCE FOLDER [OPTION...]): a program from one .cu file, in the
# build's FOLDER, with CUDA's run time linked statically. The target GROUP builds it with its others.
function(brim_add_cuda_program group name source folder)
  set(output ${CMAKE_BINARY_DIR}/${folder}/${name})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/${folder})
  get_filename_component(beside ${source} DIRECTORY)
  file(GLOB headers CONFIGURE_DEPENDS ${beside}/*.cuh)
  add_custom_command(OUTPUT ${output}
    COMMAND ${BRIM_NVCC} -cudart static -gencode ${BRIM_CUDA_PROGRAM_ARCH} ${nvcc_common}
            -o ${output} ${source} ${ARGN}
    DEPENDS ${source} ${headers} ${device_headers} COMMENT "CUDA program ${folder}/${name}" VERBATIM)
  add_custom_target(${name} DEPENDS ${output})
  add_dependencies(${group} ${name})
endfunction()
