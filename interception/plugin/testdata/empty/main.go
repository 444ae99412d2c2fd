// SPDX-License-Identifier: Apache-2.0

// Command empty does nothing: it is what any Go program costs at least.
package main

func main() {}
