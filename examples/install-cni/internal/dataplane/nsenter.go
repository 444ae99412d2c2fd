// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// lookForNsenter warns when the node has no nsenter, which the plugin needs for pods with users of their own where
// iptables write the rules.
func (c *Chooser) lookForNsenter() {
	const hint = "install package util-linux on the node, or set dataplane to nftables"
	found, err := hasNsenter(c.options.Proc)
	switch {
	case err != nil:
		c.options.Log.Info("whether the node has nsenter is not known: pods with users of their own (hostUsers: false) may need it",
			"error", err.Error(), "hint", hint)
	case !found:
		c.options.Log.Warn("pods with users of their own (hostUsers: false) are refused where iptables write the rules: the node has no nsenter",
			"hint", hint)
	}
}

// hasNsenter looks where the plugin finds the node's programs, from the root directory of the node's first
// process. A symbolic link counts, wherever it leads.
func hasNsenter(proc string) (bool, error) {
	if proc == "" {
		return false, errors.New("mounted-proc-dir is empty")
	}
	root, err := os.OpenRoot(filepath.Join(proc, "1/root"))
	if err != nil {
		return false, fmt.Errorf("open the node's root directory: %w", err)
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	var unclear error  // a directory that is a link with an absolute target, for one
	for _, directory := range []string{"usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"} {
		_, err := root.Lstat(directory + "/nsenter")
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			unclear = fmt.Errorf("look for the node's nsenter: %w", err)
		}
	}
	return false, unclear
}
