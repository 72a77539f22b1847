# embed_images.cmake: cmake -DFOLDER=... -DOUT=table.c -P embed_images.cmake
# Writes the C file that holds the device images of FOLDER/manifest.txt and their table. The bytes are
# taken in by the assembler (.incbin), a zero behind them. Their digests stand in the text, so that a
# compiler cache notices other images.
cmake_minimum_required(VERSION 3.18)
file(STRINGS ${FOLDER}/manifest.txt lines)
set(data "")
set(table "")
set(count 0)
foreach(line ${lines})
  string(REPLACE "|" ";" field "${line}")
  list(GET field 0 file)
  list(GET field 1 name)
  list(GET field 2 arch)
  list(GET field 3 capability)
  list(GET field 4 exact)
  list(GET field 5 type)
  list(GET field 6 head)
  list(GET field 7 rows)
  file(SIZE ${FOLDER}/${file} size)
  file(SHA256 ${FOLDER}/${file} digest)
  set(symbol "brim__image_${name}_${arch}")
  string(APPEND data "/* sha256 ${digest} */\nEMBED(${symbol}, \"${FOLDER}/${file}\")\n")
  set(exact_word false)
  if(exact)
    set(exact_word true)
  endif()
  string(APPEND table "    {\"${name}\", \"${arch}\", ${symbol}, ${size}, ${capability}, ${exact_word}, BRIM_DTYPE_${type}, ${head}, ${rows}},\n")
  math(EXPR count "${count} + 1")
endforeach()
set(macro "")
if(count)
  string(CONCAT macro
    "/* Hidden: other libraries don't see the symbols; the section is read-only. */\n"
    "#define EMBED(symbol, file)                                            \\\n"
    "    __asm__(\".pushsection .rodata.brim_images, \\\"a\\\"\\n\"         \\\n"
    "            \".balign 64\\n.globl \" #symbol \"\\n\"                   \\\n"
    "            \".hidden \" #symbol \"\\n\" #symbol \":\\n\"              \\\n"
    "            \".incbin \\\"\" file \"\\\"\\n.byte 0\\n.popsection\\n\"); \\\n"
    "    __attribute__((visibility(\"hidden\"))) extern const unsigned char symbol[];\n\n")
else()
  # C has no empty arrays: one row that is not counted.
  set(table "    {0},\n")
endif()
file(WRITE ${OUT} "/* Made by tools/embed_images.cmake: the device images. */
#include \"kernels/cuda/images.h\"

${macro}${data}
const brim__cuda_image brim__cuda_images[] = {
${table}};
const size_t brim__cuda_image_count = ${count};
")
