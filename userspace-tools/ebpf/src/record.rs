// SPDX-License-Identifier: GPL-2.0
//! What passes between the witness in the kernel and its reader. Included by both.

/// The flow of a packet. IPv4 addresses fill the first four bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// Of UDP and TCP, else 0.
    pub source_port: u16,
    /// Of UDP and TCP, else 0.
    pub destination_port: u16,
    /// EtherType as a number.
    pub ethertype: u16,
    /// IP protocol; 0 where the packet is no IP.
    pub protocol: u8,
    /// DSCP; 0 where the packet is no IP.
    pub dscp: u8,
}

/// What was counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Buffers: a bundle of segments is one.
    pub bundles: u64,
    /// Packets, each segment of a bundle for itself.
    pub packets: u64,
    /// Bytes on the wire, Ethernet headers included.
    pub bytes: u64,
    /// Packets by ECN codepoint: Not-ECT, ECT(1), ECT(0), CE.
    pub ecn: [u64; 4],
    /// Packets that are not IP.
    pub no_ip: u64,
}

/// One packet, in the order in which they passed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// First word of the payload, which numbers the packets of our sender.
    pub number: u32,
    /// On the wire, as in [`Counts`].
    pub bytes: u32,
    /// Segments in it; 1 for a plain packet.
    pub segments: u16,
    /// Of UDP and TCP, else 0.
    pub destination_port: u16,
    /// DSCP and ECN.
    pub dsfield: u8,
    /// Whether it is IP, so that `dsfield` means something.
    pub is_ip: u8,
    /// Whether the checksum of its IPv4 header is wrong.
    pub bad_checksum: u8,
    /// No padding, so that every byte is written.
    pub unused: u8,
}
