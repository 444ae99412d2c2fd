// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/namespace"
)

// Namespace is a network namespace that the caller created: open, and mounted at a path as
// container runtimes do.
type Namespace struct {
	file    *os.File
	netlink *netlink.Handle
}

// NewNamespace creates a network namespace with its loopback interface up, and mounts it at path,
// which must not exist yet.
func NewNamespace(path string) (*Namespace, error) { return makeNamespace(path, mountNew) }

// NewNamespaceOfUsers is [NewNamespace] for a network namespace that belongs to a user namespace of
// its own, as those of pods with hostUsers: false do.
func NewNamespaceOfUsers(path string) (*Namespace, error) { return makeNamespace(path, mountOfUsers) }

func makeNamespace(path string, mount func(path string) error) (_ *Namespace, err error) {
	mountpoint, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if err := mountpoint.Close(); err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	if err := mount(path); err != nil {
		return nil, fmt.Errorf("make network namespace %s: %w", path, err)
	}
	n, err := open(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open network namespace: %w", err), unix.Unmount(path, unix.MNT_DETACH))
	}
	return n, nil
}

// mountNew creates a network namespace and mounts it at path.
func mountNew(path string) error {
	file, err := namespace.New()
	if err != nil {
		return err
	}
	return errors.Join(unix.Mount(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), path, "", unix.MS_BIND, ""), file.Close())
}

// mountOfUsers creates a network namespace in a user namespace with the caller's ids, and mounts it
// at path. The creating process ends; the namespaces last as long as the mount.
func mountOfUsers(path string) error {
	uids, err := ownIDs("/proc/self/uid_map")
	if err != nil {
		return err
	}
	gids, err := ownIDs("/proc/self/gid_map")
	if err != nil {
		return err
	}
	holder := exec.CommandContext(context.Background(), "cat")
	stdin, err := holder.StdinPipe() // keeps it until it is closed
	if err != nil {
		return err
	}
	holder.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, UidMappings: uids, GidMappings: gids,
	}
	if err := holder.Start(); err != nil {
		return errors.Join(err, stdin.Close())
	}
	err = unix.Mount(fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid), path, "", unix.MS_BIND, "")
	return errors.Join(err, stdin.Close(), holder.Wait())
}

func open(path string) (*Namespace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	n := &Namespace{file: file}
	if n.netlink, err = netlink.NewHandleAt(n.handle(), unix.NETLINK_ROUTE); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := n.SetUp("lo"); err != nil {
		n.netlink.Close()
		return nil, errors.Join(err, file.Close())
	}
	return n, nil
}

// Path returns where the namespace is mounted.
func (n *Namespace) Path() string { return n.file.Name() }

// File returns the open namespace, which the Namespace closes.
func (n *Namespace) File() *os.File { return n.file }

// Netlink returns a handle for the namespace's rtnetlink, which the Namespace closes.
func (n *Namespace) Netlink() *netlink.Handle { return n.netlink }

// Do runs f on a thread inside the namespace. Sockets, processes and files below /proc/sys/net that
// f opens belong to the namespace; goroutines that f starts do not.
func (n *Namespace) Do(f func() error) error { return namespace.Run(n.file, f) }

func (n *Namespace) handle() netns.NsHandle { return netns.NsHandle(n.file.Fd()) }

// SetUp sets an interface up.
func (n *Namespace) SetUp(name string) error {
	link, err := n.netlink.LinkByName(name)
	if err == nil {
		err = n.netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set up interface %s: %w", name, err)
	}
	return nil
}

// AddAddress adds an address to an interface that is up. The address is usable when it returns:
// there is no duplicate detection for IPv6 (IFA_F_NODAD).
func (n *Namespace) AddAddress(ctx context.Context, name string, address netip.Prefix) error {
	link, err := n.netlink.LinkByName(name)
	if err == nil {
		added := &netlink.Addr{IPNet: IPNet(address)}
		if address.Addr().Is6() {
			added.Flags = unix.IFA_F_NODAD
		}
		err = n.netlink.AddrAdd(link, added)
	}
	if err == nil && address.Addr().Is6() {
		err = n.AwaitLocal(ctx, address.Addr())
	}
	if err != nil {
		return fmt.Errorf("add address %s to interface %s: %w", address, name, err)
	}
	return nil
}

// AwaitLocal waits until an address is usable: the kernel adds the local route to an IPv6 address
// some time after the address itself.
func (n *Namespace) AwaitLocal(ctx context.Context, address netip.Addr) error {
	handle := n.handle()
	return await(ctx, func(updates chan netlink.RouteUpdate, done <-chan struct{}, failed func(error)) error {
		o := netlink.RouteSubscribeOptions{Namespace: &handle, ListExisting: true, ErrorCallback: failed}
		return netlink.RouteSubscribeWithOptions(updates, done, o)
	}, func(u netlink.RouteUpdate) bool {
		return u.Type == unix.RTM_NEWROUTE && u.Table == unix.RT_TABLE_LOCAL && u.Dst != nil && u.Dst.IP.Equal(address.AsSlice())
	})
}

// Close unmounts and closes the namespace. Its interfaces end with its last process and socket.
func (n *Namespace) Close() error {
	n.netlink.Close()
	err := errors.Join(n.file.Close(), unix.Unmount(n.Path(), unix.MNT_DETACH), os.Remove(n.Path()))
	if err != nil {
		return fmt.Errorf("close network namespace: %w", err)
	}
	return nil
}
