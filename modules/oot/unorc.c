// SPDX-License-Identifier: GPL-2.0
/* The C part of the module unorc. */

#include "../rust/helpers/net/math.c"
#include "../rust/helpers/net/random.c"
#include "../drivers/net/unorc/device.c"
#include "../drivers/net/unorc/gf256_x86.c"
#include "../drivers/net/unorc/packets.c"
#include "../drivers/net/unorc/peers.c"
#include "../drivers/net/unorc/send.c"
