// SPDX-License-Identifier: GPL-2.0
//! Packets with two VLAN tags from another device, as on a switch: the kernel removes the outer tag, and the
//! network header is the inner tag.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::AsFd,
};

use anyhow::{Result, bail};
use nix::{
    net::if_::if_nametoindex,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use xdc_netlink::{
    Connection,
    phantom::{self, ColorSource, Mark, Options, Xstats},
    qdisc::{self, Handle, Qdisc},
};

use super::{Case, count::RED_DSCPS, tap};
use crate::{
    lab::{Lab, equal, run},
    sender::{Ecn, Frame, Kind},
};

pub const CASES: &[Case] = &[
    // A tag taken for an IP header: marks change the VLAN, and colors come from it.
    ("IP behind two VLAN tags is marked", forwarded),
];

const IN: &str = "tag0";
const OUT: &str = "tag1";
const TO: [u8; 6] = [2, 0, 0, 0, 0, 99];
const OUTER_VLAN: u16 = 10;
/// Some have bits in the place of ECT, some of DSCP 8.
const INNER_VLANS: [u16; 8] = [1, 4, 5, 6, 7, 16, 32, 33];
const BYTES: usize = 200;

fn tagged(frame: &Frame, inner: u16) -> Vec<u8> {
    let plain = frame.write(TO, 1);
    let (addresses, rest) = plain.split_at(12);
    let tag = |vlan: u16| [[0x81, 0], vlan.to_be_bytes()].concat();
    [addresses, &tag(OUTER_VLAN), &tag(inner), rest].concat()
}

/// Returns the next packet to TO.
fn receive(file: &mut File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 2_000];
    loop {
        let mut waiting = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
        if poll(&mut waiting, PollTimeout::from(5_000u16))? == 0 {
            bail!("the packet did not arrive");
        }
        let n = file.read(&mut bytes)?;
        if bytes.starts_with(&TO) {
            bytes.truncate(n);
            return Ok(bytes);
        }
    }
}

fn forwarded(_: &mut Lab) -> Result<()> {
    let (mut near, mut far) = (tap::attach(IN, 0)?, tap::attach(OUT, 0)?);
    for device in [IN, OUT] {
        run(&format!("ip link set {device} up"))?;
    }
    run(&format!("tc qdisc add dev {IN} clsact"))?;
    run(&format!(
        "tc filter add dev {IN} ingress matchall action mirred egress redirect dev {OUT}"
    ))?;
    // Marks every packet.
    let options = Options {
        rate_bytes_per_s: Some(125_000_000),
        mark: Some(Mark::Physical),
        min_ppm: Some(0),
        max_ppm: Some(0),
        color_source: Some(ColorSource::Dscp),
        dscp_red: Some(RED_DSCPS),
        ..Options::default()
    };
    let port = Qdisc {
        index: if_nametoindex(OUT)?,
        parent: Handle::ROOT,
        handle: Handle::UNSPEC,
        kind: phantom::KIND,
        options: options.encode(),
    };
    let mut connection = Connection::open()?;
    connection.request(port.add())?;

    let (mut marked, mut red) = (0, 0);
    for kind in [Kind::Udp4, Kind::Udp6] {
        for (ecn, after) in [(Ecn::NotEct, Ecn::NotEct), (Ecn::Ect1, Ecn::Ce), (Ecn::Ect0, Ecn::Ce)]
        {
            for dscp in [0, 8] {
                for vlan in INNER_VLANS {
                    let frame = Frame::new(BYTES).kind(kind).dscp(dscp);
                    near.write_all(&tagged(&frame.ecn(ecn), vlan))?;
                    let expected = tagged(&frame.ecn(after), vlan);
                    let what = format!("{kind:?}, {ecn:?}, DSCP {dscp}, VLAN {vlan}");
                    equal(&what, receive(&mut far)?, expected)?;
                    marked += u64::from(ecn != after);
                    red += if dscp == 8 { BYTES as u64 + 4 } else { 0 };
                }
            }
        }
    }
    let states = qdisc::dump(&mut connection, port.index)?;
    let Some(x) = states.iter().find_map(Xstats::of) else {
        bail!("no statistics");
    };
    equal("marked", x.marked_physical, marked)?;
    equal("red bytes", x.bytes_red, red)
}
