# Big-endian 64-bit PowerPC, statically linked, run under qemu-user. Only libc and libstdc++ exist for this target; header-only
# libraries are reached through a folder of links so that the host's own libc headers stay out of sight.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ppc64)
set(CMAKE_C_COMPILER powerpc64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER powerpc64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-ppc64;-cpu;power7")
# Without AltiVec, which takes subnormal numbers for zeros until told otherwise: kernels_altivec.cc alone has it.
set(CMAKE_CXX_FLAGS_INIT "-mcpu=970 -mno-altivec")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static")
set(headers ${CMAKE_BINARY_DIR}/host-headers)
file(MAKE_DIRECTORY ${headers})
foreach(dir boost nlohmann flatbuffers fmt)
  if(EXISTS /usr/include/${dir})
    file(CREATE_LINK /usr/include/${dir} ${headers}/${dir} SYMBOLIC)
  endif()
endforeach()
include_directories(SYSTEM ${headers})
