// SPDX-License-Identifier: GPL-2.0
//! Fabrics that a simulator's file describes.

use std::path::PathBuf;

use xdc_base::error::{Error, Result};

use super::hpcc::Graph;
use super::htsim::Clos;
use super::{FabricSpec, Shape};
use crate::budget::Budget;
use crate::{at, beside, foreign};

/// A file that was read.
#[derive(Debug, Clone)]
pub struct FabricFile {
    pub name: String,
    /// Text kept with the results.
    pub text: String,
    pub content: Content,
}

#[derive(Debug, Clone)]
pub enum Content {
    Clos(Clos),
    Graph(Graph),
}

impl FabricSpec {
    /// Reads the file that the fabric names, if it has that kind.
    pub fn read(&mut self, budget: &Budget, dirs: &[PathBuf]) -> Result<()> {
        let (Shape::Htsim | Shape::Hpcc, Some(name)) = (self.kind, &self.file) else {
            return Ok(());
        };
        let about = |err: Error| err.at(at!["topology", "fabric", "file"]);
        let (path, bytes) = beside::read(budget, dirs, name).map_err(about)?;
        let about = |err: Error| {
            let err = foreign::instead(err, &bytes, name, foreign::Role::Fabric(self.kind));
            about(err.about(path.display()))
        };
        let text = std::str::from_utf8(&bytes);
        let text = text.map_err(|_| about(Error::usage("not text in UTF-8")))?;
        let own = text.strip_prefix('\u{feff}').unwrap_or(text);
        let content = match self.kind {
            Shape::Hpcc => Graph::parse(own).map(Content::Graph),
            _ => Clos::parse(own).map(Content::Clos),
        };
        self.content = Some(FabricFile {
            name: name.clone(),
            text: text.to_owned(),
            content: content.map_err(about)?,
        });
        Ok(())
    }

    /// Content of the file of this kind of fabric.
    pub(super) fn content(&self) -> Result<&Content> {
        let Some(name) = &self.file else {
            return Err(Error::usage("this kind of fabric needs 'file'")
                .hint("the name of a topology beside the scenario"));
        };
        let content = self.content.as_ref().map(|file| &file.content);
        content.ok_or_else(|| Error::usage(format!("'{name}' was not read")))
    }
}
