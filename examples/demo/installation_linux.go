// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

func (d *demonstration) makeNode(context.Context) (detail string, err error) {
	if !d.ipv6 {
		detail = "this kernel has no IPv6: IPv4 alone is shown"
	}
	if err := d.enableIPv6(); err != nil {
		return "", err
	}
	d.original, err = d.node.writeConflist(d.ipv6)
	return detail, err
}

// enableIPv6 enables IPv6 in the current network namespace, whatever the machine's default is.
// Addresses are usable at once, because no neighbour can have the same ones.
func (d *demonstration) enableIPv6() error {
	if !d.ipv6 {
		return nil
	}
	return setSysctls(
		"net/ipv6/conf/all/disable_ipv6", "0",
		"net/ipv6/conf/default/disable_ipv6", "0",
		"net/ipv6/conf/default/accept_dad", "0",
	)
}

func setSysctls(namesAndValues ...string) error {
	for pair := range slices.Chunk(namesAndValues, 2) {
		if err := os.WriteFile("/proc/sys/"+pair[0], []byte(pair[1]), 0); err != nil {
			return err
		}
	}
	return nil
}

func (d *demonstration) startDaemon(ctx context.Context) (string, error) {
	log, err := d.openLog("install-cni")
	if err != nil {
		return "", err
	}
	if d.daemon, err = startDaemon(ctx, d.node.daemonCommand(ctx, d.api.Listener.Addr(), log)); err != nil {
		return "", err
	}
	d.later(d.daemon.stop)
	if d.installed, err = os.ReadFile(d.node.conflist()); err != nil {
		return "", err
	}
	changed := diff(string(d.original), string(d.installed))
	if changed == "" {
		return "", fmt.Errorf("%s is as it was before", d.node.conflist())
	}
	return filepath.Base(d.node.conflist()) + ":\n" + changed, nil
}

func (d *demonstration) overwriteConfig(ctx context.Context) (string, error) {
	return d.awaitRestored(ctx, func() error { return replace(d.node.conflist(), d.original) })
}

func (d *demonstration) deleteConfig(ctx context.Context) (string, error) {
	return d.awaitRestored(ctx, func() error {
		if err := os.Remove(d.node.conflist()); err != nil {
			return err
		}
		return replace(d.node.conflist(), d.original)
	})
}

func (d *demonstration) awaitRestored(ctx context.Context, change func() error) (string, error) {
	took, err := spoil(ctx, d.node.conflist(), d.installed, change)
	if err != nil {
		return "", err
	}
	return "our entry is back after " + duration(took), nil
}

func (d *demonstration) stopDaemon(context.Context) (string, error) {
	if err := d.daemon.stop(); err != nil {
		return "", fmt.Errorf("install-cni failed: %w", err)
	}
	return "our entry, the binary and the kubeconfig are still there", errors.Join(
		d.contains(d.installed),
		d.present(d.plugin(), true),
		d.present(d.node.kubeconfig(), true),
	)
}

func (d *demonstration) uninstall(ctx context.Context) (string, error) {
	log, err := d.openLog("uninstall")
	if err != nil {
		return "", err
	}
	if err := d.node.daemonCommand(ctx, d.api.Listener.Addr(), log, "uninstall").Run(); err != nil {
		said, unread := os.ReadFile(log.Name())
		return "", errors.Join(fmt.Errorf("%w, after it said:\n%s", err, bytes.TrimSpace(said)), unread)
	}
	marker := d.plugin() + ".uninstalled"
	return fmt.Sprintf("%s is as it was, byte for byte (%d bytes); binary and kubeconfig are gone; %s says so",
			filepath.Base(d.node.conflist()), len(d.original), filepath.Base(marker)),
		errors.Join(
			d.contains(d.original),
			d.present(d.plugin(), false),
			d.present(d.node.kubeconfig(), false),
			d.present(marker, true),
		)
}

// plugin returns the path at which the plugin's binary is installed.
func (d *demonstration) plugin() string { return filepath.Join(d.node.binDir(), "istio-cni") }

// contains returns an error if the primary CNI configuration is not the expected one.
func (d *demonstration) contains(want []byte) error {
	got, err := os.ReadFile(d.node.conflist())
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s is not as expected:\n%s", d.node.conflist(), diff(string(want), string(got)))
	}
	return nil
}

// present returns an error if a file exists and should not, or the reverse.
func (d *demonstration) present(path string, want bool) error {
	_, err := os.Lstat(path)
	switch {
	case want && err != nil:
		return fmt.Errorf("a file is missing: %w", err)
	case !want && err == nil:
		return fmt.Errorf("%s is still there", path)
	case !want && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}
