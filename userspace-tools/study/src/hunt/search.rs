// SPDX-License-Identifier: GPL-2.0
//! The strategy: (mu + lambda) evolution of genomes in a unit cube, with one step size and
//! restarts. No maintained crate has batches, categorical genes and rejection of known failures.

use xdc_proto::rng::Rng;

/// Numbers in [0, 1).
pub type Genome = Vec<f64>;

/// Parents that survive a generation.
const PARENTS: usize = 5;
/// Networks of a generation.
const CHILDREN: usize = 10;
/// Networks of a first generation.
const FOUNDERS: usize = 20;
/// Generations without a better one before a restart.
const PATIENCE: usize = 4;
/// Attempts to draw a network that repeats no known failure.
const ATTEMPTS: usize = 50;

/// State between two generations.
pub struct Search {
    rng: Rng,
    genes: usize,
    /// Draw each network at random: the baseline.
    random: bool,
    /// Sorted by fitness, the best first.
    parents: Vec<(Genome, f64)>,
    /// Fitness of the parent of each child of the last generation.
    of: Vec<f64>,
    /// Standard deviation of a mutation.
    step: f64,
    stale: usize,
}

impl Search {
    pub fn new(genes: usize, seed: u64, random: bool) -> Self {
        Self {
            rng: Rng::new(seed),
            genes,
            random,
            parents: Vec::new(),
            of: Vec::new(),
            step: FIRST_STEP,
            stale: 0,
        }
    }

    /// Fitness below which a network changes nothing.
    pub fn needed(&self) -> f64 {
        match self.parents.len() {
            PARENTS.. => self.parents[PARENTS - 1].1,
            _ => f64::NEG_INFINITY,
        }
    }

    /// Networks of the next generation; `is_known` tells those to avoid.
    pub fn ask(&mut self, is_known: impl Fn(&Genome) -> bool) -> Vec<Genome> {
        let first = self.parents.is_empty();
        let count = if first { FOUNDERS } else { CHILDREN };
        self.of.clear();
        let mut all = Vec::new();
        for _ in 0..count {
            let mut drawn = (Genome::new(), f64::NEG_INFINITY);
            for _ in 0..ATTEMPTS {
                drawn = match first || self.random {
                    true => (self.anywhere(), f64::NEG_INFINITY),
                    false => self.child(),
                };
                if !is_known(&drawn.0) {
                    break;
                }
            }
            self.of.push(drawn.1);
            all.push(drawn.0);
        }
        all
    }

    /// Takes the fitness of the networks that [`Self::ask`] returned.
    pub fn tell(&mut self, all: Vec<Genome>, fitness: &[f64]) {
        let before = self.best();
        if !self.parents.is_empty() {
            let pairs = self.of.iter().zip(fitness);
            let better = pairs.filter(|(parent, child)| child > parent).count();
            // One success in five is the rate at which a step is neither short nor long.
            let factor = if better * 5 > fitness.len() { 1.3 } else { 0.85 };
            self.step = (self.step * factor).clamp(LEAST_STEP, MOST_STEP);
        }
        self.parents.extend(all.into_iter().zip(fitness.iter().copied()));
        // Stable, so that of equals the older one stays.
        self.parents.sort_by(|a, b| b.1.total_cmp(&a.1));
        self.parents.truncate(PARENTS);
        self.stale = match self.best() > before + GAIN {
            true => 0,
            false => self.stale + 1,
        };
    }

    pub fn best(&self) -> f64 {
        self.parents.first().map_or(f64::NEG_INFINITY, |it| it.1)
    }

    /// Whether a restart is due.
    pub fn is_stale(&self) -> bool {
        !self.random && self.stale >= PATIENCE
    }

    /// Starts anew, with the generator's state kept.
    pub fn restart(&mut self) {
        self.parents.clear();
        self.step = FIRST_STEP;
        self.stale = 0;
    }

    fn anywhere(&mut self) -> Genome {
        (0..self.genes).map(|_| self.rng.unit()).collect()
    }

    /// A child and its parent's fitness.
    fn child(&mut self) -> (Genome, f64) {
        let parent = self.pick();
        let (mut genome, fitness) = self.parents[parent].clone();
        if self.rng.unit() < CROSSED {
            let other = self.pick();
            for (gene, others) in genome.iter_mut().zip(&self.parents[other].0) {
                if self.rng.unit() < 0.5 {
                    *gene = *others;
                }
            }
        }
        let share = MUTATED / self.genes as f64;
        let sure = self.rng.up_to(self.genes as u64 - 1) as usize;
        for (n, gene) in genome.iter_mut().enumerate() {
            if n != sure && self.rng.unit() >= share {
                continue;
            }
            *gene = match self.rng.unit() < REDRAWN {
                true => self.rng.unit(),
                false => reflect(*gene + self.step * normal(&mut self.rng)),
            };
        }
        (genome, fitness)
    }

    /// The better of two parents drawn at random.
    fn pick(&mut self) -> usize {
        let last = self.parents.len() as u64 - 1;
        self.rng.up_to(last).min(self.rng.up_to(last)) as usize
    }
}

const FIRST_STEP: f64 = 0.2;
const LEAST_STEP: f64 = 0.03;
const MOST_STEP: f64 = 0.4;
/// Fitness, a log2, by which a generation must be better to count.
const GAIN: f64 = 0.03;
/// Share of children with two parents.
const CROSSED: f64 = 0.4;
/// Mean number of mutated genes besides a sure one.
const MUTATED: f64 = 2.5;
/// Share of mutations that draw a gene anew.
const REDRAWN: f64 = 0.3;

/// Sum of uniform numbers with mean 0 and variance 1; every processor computes it alike.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
}

/// Folds a number back into [0, 1).
fn reflect(value: f64) -> f64 {
    let folded = value.rem_euclid(2.0);
    let folded = if folded > 1.0 { 2.0 - folded } else { folded };
    folded.min(1.0 - f64::EPSILON)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fitness: closeness to a point that only some genes have, with a plateau elsewhere.
    fn fitness(genome: &Genome) -> f64 {
        let at = [0.9, 0.1, 0.8, 0.7];
        let off: f64 = at.iter().zip(genome).map(|(a, b)| (a - b).abs()).sum();
        (2.0 - 2.0 * off).max(0.0)
    }

    fn best_after(networks: usize, seed: u64, random: bool) -> f64 {
        let mut search = Search::new(30, seed, random);
        let (mut asked, mut best) = (0, 0.0_f64);
        while asked < networks {
            let all = search.ask(|_| false);
            asked += all.len();
            let fit: Vec<_> = all.iter().map(fitness).collect();
            best = fit.iter().copied().fold(best, f64::max);
            search.tell(all, &fit);
            if search.is_stale() {
                search.restart();
            }
        }
        best
    }

    #[test]
    fn evolution_finds_more_than_random_draws() {
        let wins =
            (0..20).filter(|&seed| best_after(200, seed, false) > best_after(200, seed, true));
        assert!(wins.count() >= 16);
    }

    #[test]
    fn a_seed_repeats_and_known_networks_are_avoided() {
        let draw = |seed| Search::new(5, seed, false).ask(|genome| genome[0] < 0.5);
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
        assert!(draw(3).iter().all(|genome| genome[0] >= 0.5));
        let mut search = Search::new(5, 1, false);
        for _ in 0..20 {
            let all = search.ask(|genome| genome[0] < 0.5);
            assert!(all.iter().flatten().all(|gene| (0.0..1.0).contains(gene)));
            assert!(all.iter().all(|genome| genome[0] >= 0.5));
            let fit: Vec<_> = all.iter().map(fitness).collect();
            search.tell(all, &fit);
        }
    }

    #[test]
    fn a_search_without_gains_restarts() {
        let mut search = Search::new(3, 1, false);
        for n in 0..=PATIENCE {
            assert!(!search.is_stale(), "generation {n}");
            let all = search.ask(|_| false);
            let fit = vec![1.0; all.len()];
            search.tell(all, &fit);
        }
        assert!(search.is_stale());
        assert_eq!(search.needed(), 1.0);
        search.restart();
        assert_eq!(search.ask(|_| false).len(), FOUNDERS);
        assert_eq!(search.needed(), f64::NEG_INFINITY);
    }
}
