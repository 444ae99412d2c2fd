// SPDX-License-Identifier: Apache-2.0

package reconciler

import "fmt"

// Mode is a way to have a container runtime call a plugin.
type Mode string

// The modes. The empty one is Splice, but where the primary configuration is a symbolic link: there it is DropIn where the runtime is known to
// read such files, else Owned. A link that sorts before a list of our own is refused then.
const (
	// Splice puts the plugin's entry into the list that the runtime uses, whoever owns it. It works with every runtime. Whoever writes that
	// file anew removes the entry, until it is put back. Where the list is a symbolic link to a file in the directory or below it, that
	// file is replaced, and the link stays.
	Splice Mode = "splice"
	// Owned keeps a list of our own that sorts first: a copy of the list that the runtime would use, with our entry. The file of the
	// others stays as it is, and what changes in it is copied. Our file is there from the first moment after a reboot; an agent that
	// removes the files of others (Cilium with cni.exclusive) removes it too. Entries that other installers put into our list are kept. When
	// our list goes, they are put into the one that a runtime takes then.
	Owned Mode = "owned"
	// DropIn keeps a file in the directory that is named after the network, beside the list. No file of others is touched. It takes a runtime
	// with libcni 1.3; older ones ignore the file, and pods pass the mesh by.
	DropIn Mode = "dropin"
	// Standalone keeps a single configuration of the plugin alone, for a meta plugin (Multus) that calls it beside the network's own. No other
	// file is needed or touched.
	Standalone Mode = "standalone"
	// Auto is DropIn where the runtime is known to read such files, else Owned where nothing speaks against it, else Splice.
	Auto Mode = "auto"
)

// ParseMode reads a mode as it is written in settings. The empty text is the empty mode. The error names the modes.
func ParseMode(text string) (Mode, error) {
	switch m := Mode(text); m {
	case "", Splice, Owned, DropIn, Standalone, Auto:
		return m, nil
	}
	return "", fmt.Errorf("%q is no mode: write splice, owned, dropin, standalone or auto", text)
}

// orSplice gives the empty mode its name.
func (m Mode) orSplice() Mode {
	if m == "" {
		return Splice
	}
	return m
}
