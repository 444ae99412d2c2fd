// SPDX-License-Identifier: Apache-2.0

// Package jsonreader reads JSON objects of which the program knows beforehand what they may have.
//
// # Goals
//
// A program that reads an object once, and ends, shouldn't pay for finding out what its types look like: that costs encoding/json more than the
// reading does. What is read here is what json.Unmarshal makes of the same text, exactly.
//
// # Non-goals
//
// Only the usual is understood: members that are there once, in the case that is expected, of the type that is expected, and no null in their
// place. All else is left to encoding/json, which has a value or an error for it. So whoever calls [Read] has json.Unmarshal behind it, types
// with tags for that, and a fuzz test that holds both together.
package jsonreader
