// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Run runs do on a thread that is in the network namespace of an open descriptor (namespaces(7)),
// and waits for it. Sockets and files below /proc/sys/net that do opens belong to that namespace;
// goroutines that it starts run elsewhere. The error is do's, or explains why the namespace cannot
// be entered.
func Run(namespace *os.File, do func() error) error {
	connection, err := namespace.SyscallConn()
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", namespace.Name(), err)
	}
	done := make(chan error)
	var entered error
	// Control keeps the descriptor open meanwhile, even if another goroutine closes it.
	if err := connection.Control(func(fd uintptr) {
		go func() { done <- onThread(netns.NsHandle(fd), do) }()
		entered = <-done
	}); err != nil {
		return fmt.Errorf("network namespace %s: %w", namespace.Name(), err)
	}
	return entered
}

// onThread needs a goroutine of its own. If the thread cannot return to its namespace, it stays
// locked and the runtime ends it with the goroutine, so no other code ever runs in that namespace.
func onThread(namespace netns.NsHandle, do func() error) error {
	runtime.LockOSThread()
	origin, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the thread's network namespace: %w", err)
	}
	defer func() { _ = origin.Close() }()
	if err := netns.Set(namespace); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w (it takes CAP_SYS_ADMIN in the user namespace that owns it)", err)
	}
	err = do()
	if netns.Set(origin) == nil {
		runtime.UnlockOSThread()
	}
	return err
}

// New makes a network namespace that contains only a loopback interface, which is down. The
// namespace has no name, no path and no process: it ends when the caller closes the file and
// everything opened in it is closed.
func New() (file *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread stays locked, so the runtime ends it: no other code runs in that namespace.
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The runtime never ends the main thread, and /proc/self/ns/net shows the main thread's
			// namespace. While it is locked here, the work has to go to another thread.
			defer runtime.UnlockOSThread()
			file, err = New()
			return
		}
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("make network namespace: %w (it takes CAP_SYS_ADMIN)", err)
			return
		}
		file, err = os.Open("/proc/thread-self/ns/net")
	}()
	<-done
	return file, err
}

// Addresses returns the addresses of all interfaces of a network namespace, without zones.
func Addresses(in *os.File) (all []netip.Addr, err error) {
	err = Run(in, func() (err error) {
		all, err = OwnAddresses()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the addresses in %s: %w", in.Name(), err)
	}
	return all, nil
}

// OwnAddresses is [Addresses] for the namespace in which the caller runs.
func OwnAddresses() (all []netip.Addr, err error) {
	addresses, err := net.InterfaceAddrs()
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil {
			all = append(all, prefix.Addr().Unmap())
		}
	}
	return all, err
}
