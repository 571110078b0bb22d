/* SPDX-License-Identifier: GPL-2.0 */
/*
 * bindgen reads this header after the tracepoints' headers, so it includes every type that Rust
 * accesses.
 */
#include <linux/inet_diag.h>
#include <linux/sysctl.h>
#include <uapi/linux/fabric.h>
#include <uapi/linux/pkt_acceltor.h>
#include <uapi/linux/pkt_phantom.h>
#include <uapi/linux/unorc.h>
#include <uapi/linux/xdc_diag.h>

#include "../rust/helpers/net/helpers.h"
#include "../net/tlt/tlt.h"
#include "../drivers/net/fabric/fabric.h"
#include "../drivers/net/unorc/device.h"
#include "../drivers/net/unorc/gf256_x86.h"
