// SPDX-License-Identifier: Apache-2.0

// Package conflist edits CNI network configurations without disturbing them: it puts a plugin's entry into a list of plugins, takes it
// out again, finds it, and says which file of a directory a container runtime loads.
//
//	doc --Insert--> doc with our entry --Remove--> doc
//
// A node's network configuration belongs to somebody else, and every pod of the node depends on it. So a document is edited as bytes:
// it is scanned with positions, and the few bytes of one entry are spliced in or out. Everything else stays as it was, byte for byte:
// the order of keys, blanks, line ends, numbers of any size, escapes, fields that no specification knows.
//
// # Laws
//
//   - Remove(Insert(x)) is x, byte for byte, for every list x that has no entry of the plugin.
//   - Behind Insert the plugin's entry is not the first, unless it is the only one: the first makes the interface.
//   - Insert after Insert of the same entry changes nothing.
//   - Out is always a document that this package reads again, with the entry in it once (Insert) or not at all (Remove).
//   - What cannot be understood, or what two readers could understand in two ways, is refused with line and column and left alone.
//
// # What is read
//
// A document is JSON in one of the two forms of the CNI specification: a list ("plugins"; files named .conflist) or a single plugin's
// configuration ("type"; files named .conf or .json), which [Insert] lifts to a list. Only the top-level "plugins" array counts, and its
// entries must be objects with a non-empty string "type". The rest of a list is nobody's business here: "cniVersions", "disableCheck",
// "disableGC", "loadOnlyInlinedPlugins" and unknown keys are neither judged nor touched.
//
// Runtimes read lists by the exact spelling of a key and take the last of several, and single configurations by any spelling. Therefore
// "cniVersion", "name", "plugins" and "type" of the document, and "type" of an entry, must stand at most once and in exactly this
// spelling; two of them, or a "Type", are refused. A byte order mark is refused as well, since no runtime accepts one.
//
// # Non-goals
//
// The package reads no files but those [Primary] is given, and writes none; it does not know one plugin from another; it does not
// validate what a plugin will find in its entry; it never repairs, reformats or upgrades a document.
package conflist
