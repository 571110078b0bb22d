// SPDX-License-Identifier: GPL-2.0

//! Phantom: a switch port as a queue discipline.
//!
//! A FIFO, optionally shaped to a rate; a phantom queue, which counts the bytes of a slower port;
//! ECN marks from either or both; and less room for less important packets. Sources: Uno, sections
//! 4.1.3 and 5.1 (phantom queue, RED), and TLT, section 4 (colors). The netlink interface is
//! uapi/linux/pkt_phantom.h; counter, RED and thresholds are in algo/.
//!
//! Design decisions:
//!
//! 1. Each arriving packet enters the phantom queue, even if it is dropped: the queue models load,
//!    not occupancy.
//! 2. RED sees the bytes of other packets: at enqueue the queue before the packet, at dequeue the
//!    packets behind it.
//! 3. The shaper releases a packet when the earlier ones are serialized. It catches up late timers,
//!    so that the average is exact, but at most [`Shaper::MAX_LAG_NS`].
//! 4. Random numbers are a sequence of the port, so that equal seeds give equal simulations.
//! 5. A lower limit drops no queued packets; it admits no new ones.
//! 6. The ports directly below mq and similar qdiscs share one phantom queue, since they share the
//!    line. A request's size and drain apply to all of them, and the latest request wins, unless
//!    its drain is unknown.
//! 7. The port follows the device's speed, and keeps the last known speed.

use kernel::{
    prelude::*,
    sync::{new_mutex, Arc},
};

#[path = "../../algo/mod.rs"]
mod algo;
#[path = "bounds.rs"]
mod bounds;
#[path = "../../oot/kernel_api.rs"]
mod kernel_api;
#[path = "phantom_config.rs"]
mod phantom_config;
#[path = "phantom_counters.rs"]
mod phantom_counters;
#[path = "phantom_options.rs"]
mod phantom_options;
#[path = "phantom_pool.rs"]
mod phantom_pool;
#[path = "phantom_port.rs"]
mod phantom_port;
#[path = "phantom_shared.rs"]
mod phantom_shared;
#[path = "settings.rs"]
mod settings;

use algo::{
    color::{Color, Occupancy},
    phantom::{self, Phantom},
    port::{self, Config},
    random::Random,
    shaper::Shaper,
};
use kernel_api::{
    netlink::{Extack, Message, Nest},
    qdisc::{now_ns, Link, Packet, Qdisc, Queue, Registration, RtnlQdisc, Verdict},
    uapi::*,
};
use phantom_config::config;
use phantom_counters::{Counters, DropCause};
use phantom_options::{Options, Request, Shown};
use phantom_pool::{Pool, Pools};
use phantom_port::{Clock, Sorted, State};
use phantom_shared::{Key, SharedPhantom, SharedPhantoms};

module! {
    type: Module,
    name: "sch_phantom",
    authors: ["xdc developers"],
    description: "Phantom queue discipline",
    license: "GPL v2",
    alias: ["net-sch-phantom"],
}

struct Module {
    _registration: Registration<Port>,
}

/// State that all ports share.
struct Common {
    pools: Arc<Pools>,
    phantoms: Arc<SharedPhantoms>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let common = Common {
            pools: Arc::pin_init(new_mutex!(KVec::new()), GFP_KERNEL)?,
            phantoms: Arc::pin_init(new_mutex!(KVec::new()), GFP_KERNEL)?,
        };
        Ok(Self {
            _registration: Registration::new(common)?,
        })
    }
}

/// State under RTNL.
struct Rtnl {
    /// Id of this port among those of its phantom queue.
    id: u64,
    /// Last known speed of the device; 0 = none.
    link_bytes_per_s: u64,
    /// Shared objects of [`State`].
    pool: Option<Arc<Pool>>,
    shared_phantom: Option<Arc<SharedPhantom>>,
}

impl Rtnl {
    /// Stores the device's speed, which is unknown while its link is down.
    fn learn_link(&mut self, bytes_per_s: Option<u64>) {
        if let Some(bytes_per_s) = bytes_per_s {
            self.link_bytes_per_s = bytes_per_s;
        }
    }

    /// Configures the shared phantom queue. If the user named size or drain, this port decides;
    /// otherwise the port of the last such request does.
    fn configure_shared(&self, request: &Request<'_>, config: &phantom::Config) {
        const NAMED: &[u32] = &[
            TCA_PHANTOM_LINE_RATE64,
            TCA_PHANTOM_RATE64,
            TCA_PHANTOM_PQ_LIMIT,
            TCA_PHANTOM_PQ_DRAIN_PPM,
        ];
        let Some(shared) = &self.shared_phantom else {
            return;
        };
        if NAMED.iter().any(|&id| request.get(id).is_some()) {
            shared.configure_by_user(self.id, config, now_ns());
        } else {
            shared.configure_by_device(self.id, config, now_ns());
        }
    }

    fn close(&mut self, common: &Common) {
        if let Some(pool) = self.pool.take() {
            pool.close(&common.pools);
        }
        if let Some(shared) = self.shared_phantom.take() {
            shared.close(&common.phantoms, self.id);
        }
    }

    fn config(&self, options: &Options) -> Config {
        let shares_phantom = self.shared_phantom.is_some();
        config(options, self.link_bytes_per_s, shares_phantom)
    }
}

/// One qdisc. phantom_port.rs has its packets' way.
struct Port {
    options: Shown,
    counters: Counters,
}

impl Port {
    /// Applies a configuration; returns the previous pool.
    fn configure(
        &self,
        qdisc: &mut RtnlQdisc<'_, Self>,
        config: Config,
        pool: Option<Arc<Pool>>,
    ) -> Option<Arc<Pool>> {
        let now_ns = now_ns();
        let drain_bytes_per_s = config.phantom.drain_bytes_per_s;
        let old = qdisc.lock(|state| {
            state.port.configure(config, now_ns);
            let phantom_bytes = match &state.shared_phantom {
                Some(shared) => shared.bytes(now_ns),
                None => state.port.phantom.bytes(),
            };
            self.counters.show_phantom(phantom_bytes, now_ns);
            self.counters
                .phantom_drain_bytes_per_s
                .set(drain_bytes_per_s);

            let queued_bytes = state.port.queued.total();
            let old = core::mem::replace(&mut state.pool, pool);
            if let Some(old) = &old {
                old.give_back(queued_bytes);
            }
            if let Some(new) = &state.pool {
                new.take_over(queued_bytes);
            }
            old
        });
        old.flatten()
    }
}

impl Qdisc for Port {
    const NAME: &'static CStr = c"phantom";

    type Module = Common;
    type State = State;
    type Rtnl = Rtnl;
    type Stats = tc_phantom_xstats;

    fn init(
        common: &Common,
        qdisc: &mut RtnlQdisc<'_, Self>,
        nest: Nest<'_>,
        extack: &Extack<'_>,
    ) -> Result<(Self, Rtnl, State)> {
        let request = Request::parse(nest, extack)?;
        let mut options = Options::new();
        options.read(&request, extack)?;
        let device = qdisc.device();
        let key = |parent| Key {
            device: device.id(),
            parent,
        };
        let shared_phantom = match qdisc.below_mq() {
            Some(parent) => Some(SharedPhantom::open(&common.phantoms, key(parent))?),
            None => None,
        };
        let mut rtnl = Rtnl {
            id: qdisc.id(),
            link_bytes_per_s: 0,
            pool: None,
            shared_phantom,
        };
        rtnl.learn_link(device.link_bytes_per_s());
        let config = rtnl.config(&options);
        // Without options (net.core.default_qdisc) the user may not expect this qdisc.
        if config.lacks_line_rate && !nest.is_none() {
            rtnl.close(common);
            return Err(extack.invalid(NO_LINE_RATE));
        }
        match Pool::open(
            &common.pools,
            qdisc.net(),
            &options,
            false,
            &request,
            extack,
        ) {
            Ok(pool) => rtnl.pool = pool,
            Err(error) => {
                rtnl.close(common);
                return Err(error);
            }
        }
        let port = Self {
            options: Shown::new(&options),
            counters: Counters::new(),
        };
        port.counters
            .phantom_drain_bytes_per_s
            .set(config.phantom.drain_bytes_per_s);
        rtnl.configure_shared(&request, &config.phantom);
        let state = State {
            port: port::Port::new(config, options.seed()),
            shared_phantom: rtnl.shared_phantom.clone(),
            pool: rtnl.pool.clone(),
        };
        Ok((port, rtnl, state))
    }

    fn change(
        &self,
        common: &Common,
        rtnl: &mut Rtnl,
        qdisc: &mut RtnlQdisc<'_, Self>,
        nest: Nest<'_>,
        extack: &Extack<'_>,
    ) -> Result {
        let request = Request::parse(nest, extack)?;
        let mut options = self.options.get();
        rtnl.learn_link(qdisc.device().link_bytes_per_s());
        let (old_pool, lacked_line_rate) = (options.pool, rtnl.config(&options).lacks_line_rate);
        options.read(&request, extack)?;
        let config = rtnl.config(&options);
        if config.lacks_line_rate && !lacked_line_rate {
            return Err(extack.invalid(NO_LINE_RATE));
        }
        let is_in = options.pool == old_pool;
        rtnl.pool = Pool::open(
            &common.pools,
            qdisc.net(),
            &options,
            is_in,
            &request,
            extack,
        )?;
        rtnl.configure_shared(&request, &config.phantom);
        if let Some(old) = self.configure(qdisc, config, rtnl.pool.clone()) {
            old.close(&common.pools);
        }
        if request.get(TCA_PHANTOM_SEED).is_some() {
            qdisc.lock(|state| state.port.random = Random::new(options.seed()));
        }
        self.options.set(&options);
        // The timer may be set for the old rate.
        qdisc.schedule_watchdog_now();
        Ok(())
    }

    fn link_changed(&self, rtnl: &mut Rtnl, qdisc: &mut RtnlQdisc<'_, Self>, link: &mut Link<'_>) {
        rtnl.learn_link(link.bytes_per_s());
        let config = rtnl.config(&self.options.get());
        let drain_bytes_per_s = config.phantom.drain_bytes_per_s;
        if drain_bytes_per_s != self.counters.phantom_drain_bytes_per_s.get() {
            if let Some(shared) = &rtnl.shared_phantom {
                shared.configure_by_device(rtnl.id, &config.phantom, now_ns());
            }
            self.configure(qdisc, config, rtnl.pool.clone());
        }
    }

    fn destroy(&self, common: &Common, rtnl: &mut Rtnl, _state: &mut State) {
        rtnl.close(common);
    }

    fn splits_segments(state: &State) -> bool {
        state.port.config.split
    }

    // Fast path for almost all packets.
    #[inline(always)]
    fn enqueue<'a>(&self, state: &mut State, queue: Queue<'a>, mut packet: Packet<'a>) -> Verdict {
        let len_bytes = u64::from(packet.len_bytes());
        if !state.port.config.plain || !state.port.has_room(len_bytes) {
            return self.enqueue_any(state, queue, packet);
        }
        let mut clock = Clock::default();
        if state.port.config.mark_at_enqueue {
            *packet.cb() = Color::Green as u8;
            packet = match self.judge::<false>(state, &mut clock, queue, packet) {
                Ok(packet) => packet,
                Err(packet) => return self.drop_chosen(state, clock, queue, packet, Color::Green),
            };
        }
        self.count_load::<false>(state, &mut clock, len_bytes);
        self.accept(state, &mut clock, queue, packet, Color::Green, len_bytes)
    }

    #[inline(always)]
    fn dequeue<'a>(&self, state: &mut State, queue: Queue<'a>) -> Option<Packet<'a>> {
        if queue.is_empty() {
            None
        } else if state.port.config.plain_dequeue {
            self.take_and_judge::<false>(state, &mut Clock::default(), queue)
        } else {
            self.dequeue_shaped(state, queue)
        }
    }

    #[cold]
    fn drop_whole<'a>(&self, state: &mut State, queue: Queue<'a>, packet: Packet<'a>) -> Verdict {
        match self.color(&state.port.config.source, queue, packet) {
            Sorted::Color(packet, color) => {
                let packet = self.count_dropped(state, Clock::default(), packet);
                self.drop_packet(state, queue, packet, color, DropCause::Whole)
            }
            Sorted::Drop(packet) => {
                self.drop_packet(state, queue, packet, Color::Green, DropCause::Filter)
            }
            Sorted::Stolen(verdict) => verdict,
        }
    }

    fn reset(&self, state: &mut State) {
        if let Some(pool) = &state.pool {
            pool.give_back(state.port.queued.total());
        }
        state.port.queued = Occupancy::default();
        state.port.phantom = Phantom::default();
        state.port.shaper = Shaper::default();
        let now_ns = now_ns();
        self.counters.go_idle(now_ns);
        self.counters.show_phantom(0, now_ns);
    }

    fn dump(&self, rtnl: &Rtnl, message: &mut Message<'_>) -> Result {
        let mut options = self.options.get();
        if let Some(pool) = &rtnl.pool {
            // Another port of the pool may have changed its size.
            options.set_pool_limit(pool.limit_bytes());
        }
        options.write(message)
    }

    fn stats(&self, rtnl: &Rtnl, _qdisc: &mut RtnlQdisc<'_, Self>) -> tc_phantom_xstats {
        let counters = &self.counters;
        let now_ns = now_ns();
        let [drops_green, drops_yellow, drops_red] = &counters.drops;
        let [bytes_green, bytes_yellow, bytes_red] = &counters.accepted_bytes;
        let [packets_green, packets_yellow, packets_red] = &counters.accepted_packets;
        tc_phantom_xstats {
            phantom_bytes: match &rtnl.shared_phantom {
                Some(shared) => shared.bytes(now_ns),
                None => counters.phantom_bytes_at(now_ns),
            },
            phantom_max_bytes: counters.phantom_max_bytes.get(),
            backlog_max_bytes: counters.backlog_max_bytes.get(),
            marked_phantom: counters.marked_phantom.get(),
            marked_physical: counters.marked_physical.get(),
            marked_both: counters.marked_both.get(),
            would_mark: counters.would_mark.get(),
            drops_limit: counters.drops_limit.get(),
            drops_pool: counters.drops_pool.get(),
            drops_ecn: counters.drops_ecn.get(),
            drops_green: drops_green.get(),
            drops_yellow: drops_yellow.get(),
            drops_red: drops_red.get(),
            drops_color: counters.drops_color.get(),
            bytes_green: bytes_green.get(),
            bytes_yellow: bytes_yellow.get(),
            bytes_red: bytes_red.get(),
            busy_ns: counters.busy_ns_until(now_ns),
            phantom_drain_bytes_per_s: match &rtnl.shared_phantom {
                Some(shared) => shared.config().drain_bytes_per_s,
                None => counters.phantom_drain_bytes_per_s.get(),
            },
            pool_used_bytes: rtnl.pool.as_ref().map_or(0, |pool| pool.used_bytes()),
            packets_green: packets_green.get(),
            packets_yellow: packets_yellow.get(),
            packets_red: packets_red.get(),
            red_max_bytes: counters.red_max_bytes.get(),
        }
    }
}

const NO_LINE_RATE: &CStr =
    c"mark needs rate or line-rate for the phantom queue: the device reports no speed";
