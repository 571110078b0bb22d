// SPDX-License-Identifier: GPL-2.0
/* Included by the C file of each module that is a network device. */

#include "shim.h"
#include "shim_math.c"
#include "shim_random.c"
#include "shim_udp_tunnel.c"
#include "shim_vectors.c"
