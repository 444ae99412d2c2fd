// SPDX-License-Identifier: Apache-2.0

// Words keeps the prose of the tree readable: it fails if a text has one of the words that the
// glossary lists as not used, or a line of more than 100 columns.
//
//	words [DIRECTORY]
//
// The words are the first column of the table under "Words not used" in docs/glossary.md. They may
// be neither in Markdown and Go comments, nor in the string literals of Go files other than tests.
// The limit of a line's length is for Markdown and for comments of Go that have a line of their
// own; tables, links and code, which cannot be wrapped, may be longer.
//
// .ci/words lists files that are let off, one "path: reason" a line; a path that ends in a slash is
// a directory. An exception that no file needs is an error, too.
//
//	docs/plan.md:7: "WORD": what to write instead
//	conflist/doc.go:3: 104 columns, more than 100: wrap it
//
// The exit code is 0 if there is nothing to complain about.
package main
