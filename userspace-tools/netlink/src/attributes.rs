// SPDX-License-Identifier: GPL-2.0
//! Netlink attributes as bytes, for options that netlink-packet-route lacks.

use netlink_packet_core::{NlaBuffer, NlasIterator};

use crate::connection::{Error, Result};

/// A list of attributes under construction.
#[derive(Debug, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// Starts a list that follows a fixed struct.
    pub fn after(fixed: Vec<u8>) -> Self {
        Self(fixed)
    }

    /// Appends one attribute, padded to four bytes.
    pub fn push(&mut self, id: u16, value: &[u8]) -> &mut Self {
        let length = (4 + value.len()) as u16;
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&id.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Returns the list.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Returns the attributes in `bytes` as (id, value).
pub fn parse(bytes: &[u8]) -> impl Iterator<Item = Result<(u16, Vec<u8>)>> + '_ {
    NlasIterator::new(bytes).map(|attribute: std::result::Result<NlaBuffer<&[u8]>, _>| {
        let attribute = attribute.map_err(|e| Error::Malformed(e.to_string()))?;
        Ok((attribute.kind(), attribute.value().to_vec()))
    })
}
