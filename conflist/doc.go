// SPDX-License-Identifier: Apache-2.0

// Package conflist edits CNI network configurations without disturbing them. It inserts a plugin's
// entry into a list of plugins, removes it, finds it, and determines which file of a directory a
// container runtime loads.
//
//	doc --Insert--> doc with our entry --Remove--> doc
//
// A node's network configuration belongs to another program, and every pod of the node depends on
// it. Therefore a document is edited as bytes: it is read with positions, and only the few bytes
// of one entry are spliced in or out. Everything else stays byte for byte: the order of keys,
// blanks, line ends, numbers of any size, escapes, and fields that no specification defines.
//
// # Laws
//
//   - Remove(Insert(x)) is x, byte for byte, for every list x without an entry of the plugin.
//   - After Insert the plugin's entry is not the first, unless it is the only one: the first plugin
//     creates the interface.
//   - A second Insert of the same entry changes nothing.
//   - Out is always a document that this package can read, with the entry in it once (Insert) or
//     not at all (Remove).
//   - A document that cannot be parsed, or that two readers could read differently, is refused with
//     line and column.
//
// # Documents
//
// A document is JSON in one of the two forms of the CNI specification: a list ("plugins"; files
// named .conflist) or a single plugin's configuration ("type"; files named .conf or .json), which
// [Insert] lifts to a list. Only the top-level "plugins" array counts, and its entries must be
// objects with a non-empty string "type". The package neither checks nor changes the rest of a
// list: "cniVersions", "disableCheck", "disableGC", "loadOnlyInlinedPlugins" and unknown keys.
//
// Runtimes match the keys of a list exactly and take the last of several; they match the keys of a
// single configuration in any spelling. Therefore "cniVersion", "name", "plugins" and "type" of the
// document, and "type" of an entry, may appear only once and only in this spelling; a second one,
// or a "Type", is refused. A byte order mark is refused as well, because no runtime accepts it.
//
// # Non-goals
//
// The package reads only the files that [Primary] is given, and writes none. It treats all plugins
// alike and does not validate the contents of an entry. It never repairs, reformats or upgrades a
// document.
package conflist
