// avxvnni with the other encoding of its dot product; see there. Never in a release: where it runs,
// avx512vnni is faster.
#pragma once

#include "kernels/lanes/avxvnni.hpp"
