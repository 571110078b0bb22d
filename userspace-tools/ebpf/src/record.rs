// SPDX-License-Identifier: GPL-2.0
//! Data that the witness in the kernel passes to its reader. Included by both.

/// Flow of a packet. IPv4 addresses use the first four bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// Source port; 0 unless UDP or TCP.
    pub source_port: u16,
    /// Destination port; 0 unless UDP or TCP.
    pub destination_port: u16,
    /// EtherType as a number.
    pub ethertype: u16,
    /// IP protocol; 0 unless IP.
    pub protocol: u8,
    /// DSCP; 0 unless IP.
    pub dscp: u8,
}

/// Counters of a flow, or of all packets.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Buffers; a GSO packet counts as one.
    pub bundles: u64,
    /// Packets; each segment of a GSO packet counts.
    pub packets: u64,
    /// Bytes on the wire, including Ethernet headers.
    pub bytes: u64,
    /// Packets by ECN codepoint: Not-ECT, ECT(1), ECT(0), CE.
    pub ecn: [u64; 4],
    /// Packets that are not IP.
    pub no_ip: u64,
}

/// One packet, in the order of passing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// First word of the payload, the packet number of our sender.
    pub number: u32,
    /// Bytes on the wire, as in [`Counts`].
    pub bytes: u32,
    /// Segments; 1 for a plain packet.
    pub segments: u16,
    /// Destination port; 0 unless UDP or TCP.
    pub destination_port: u16,
    /// DSCP and ECN.
    pub dsfield: u8,
    /// Whether the packet is IP, so that `dsfield` is valid.
    pub is_ip: u8,
    /// Whether the checksum of the IPv4 header is wrong.
    pub bad_checksum: u8,
    /// Explicit padding, so that every byte is written.
    pub unused: u8,
}
