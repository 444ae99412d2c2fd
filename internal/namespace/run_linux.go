// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netns"
)

// Run runs do on a thread that is in the network namespace of an open descriptor (namespaces(7)), and waits for it. What do opens,
// sockets and files below /proc/sys/net, belongs to that namespace; goroutines that it starts do not. The error is do's, or says why the
// namespace cannot be entered.
func Run(namespace *os.File, do func() error) error {
	connection, err := namespace.SyscallConn()
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", namespace.Name(), err)
	}
	done := make(chan error)
	var entered error
	// Control keeps the descriptor open meanwhile, whoever closes it.
	if err := connection.Control(func(fd uintptr) {
		go func() { done <- onThread(netns.NsHandle(fd), do) }()
		entered = <-done
	}); err != nil {
		return fmt.Errorf("network namespace %s: %w", namespace.Name(), err)
	}
	return entered
}

// onThread is to be called on a goroutine of its own. When the thread cannot be brought back, it stays locked, and
// the runtime ends it with the goroutine: no other code ever runs in that namespace.
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
