// SPDX-License-Identifier: GPL-2.0
//! BPF programs as direct-action filters of a qdisc: include/uapi/linux/pkt_cls.h.

use std::os::fd::RawFd;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHeader, TcMessage, TcOption},
};

use crate::{Connection, Request, Result, qdisc::Handle};

/// Location of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Device.
    pub index: u32,
    /// Qdisc that runs the filter.
    pub parent: Handle,
    /// Filters with lower numbers run first.
    pub priority: u16,
}

/// ETH_P_ALL in network byte order.
const ALL: u16 = 3u16.to_be();

/// Handle of our filter.
const HANDLE: u32 = 1;

impl Place {
    /// Returns the first place at a device's ingress.
    pub fn ingress(index: u32) -> Self {
        Self { index, parent: Handle { major: 0xffff, minor: Handle::MIN_INGRESS }, priority: 1 }
    }

    fn message(&self, handle: u32, attributes: Vec<TcAttribute>) -> TcMessage {
        TcMessage::from_parts(
            TcHeader {
                index: self.index as i32,
                parent: self.parent,
                handle: Handle::from(handle),
                info: u32::from(self.priority) << 16 | u32::from(ALL),
                ..Default::default()
            },
            attributes,
        )
    }

    /// `tc filter add dev ... bpf direct-action` with a loaded program. Fails if the place is
    /// taken.
    pub fn add(&self, name: &str, program: RawFd) -> Request {
        let options = vec![
            TcFilterBpfOption::ProgFd(program as u32),
            TcFilterBpfOption::ProgName(name.to_string()),
            TcFilterBpfOption::Flags(TcBpfFlags::DirectAction),
        ];
        Request {
            what: format!("attach the program {name}"),
            message: RouteNetlinkMessage::NewTrafficFilter(self.message(
                HANDLE,
                vec![
                    TcAttribute::Kind("bpf".to_string()),
                    TcAttribute::Options(options.into_iter().map(TcOption::Bpf).collect()),
                ],
            )),
            flags: NLM_F_CREATE | NLM_F_EXCL,
        }
    }

    /// `tc filter del` for a filter of [`Place::add`].
    pub fn delete(&self) -> Request {
        Request {
            what: "detach the program".to_string(),
            message: RouteNetlinkMessage::DelTrafficFilter(
                self.message(HANDLE, vec![TcAttribute::Kind("bpf".to_string())]),
            ),
            flags: 0,
        }
    }

    /// Returns the ids of the programs here, one per chain. Asks for this priority alone, because
    /// other filters may be of a kind that cannot be decoded.
    pub fn programs(&self, connection: &mut Connection) -> Result<Vec<u32>> {
        let message = self.message(0, Vec::new());
        let found =
            connection.dump("list the filters", RouteNetlinkMessage::GetTrafficFilter(message))?;
        let numbers = found.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewTrafficFilter(message)
                if message.header.index as u32 == self.index
                    && u32::from(message.header.handle) == HANDLE
                    && message.header.info >> 16 == u32::from(self.priority) =>
            {
                number(&message)
            }
            _ => None,
        });
        Ok(numbers.collect())
    }
}

fn number(message: &TcMessage) -> Option<u32> {
    let options = message.attributes.iter().find_map(|it| match it {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    })?;
    options.iter().find_map(|option| match option {
        TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => Some(*id),
        _ => None,
    })
}
