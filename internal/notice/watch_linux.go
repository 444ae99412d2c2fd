// SPDX-License-Identifier: Apache-2.0

package notice

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// Watch is an open watch of network namespaces. Its methods may be called concurrently.
type Watch struct {
	sockets []*os.File
	reading sync.WaitGroup
	pending *pending

	own unix.Stat_t // the namespace of the sockets

	mu     sync.Mutex
	claims map[string]interception.NetnsID // by key
	keys   map[int32]string                // by the id that the kernel has given the namespace
	ids    map[string]int32
}

// ownID stands for the namespace of the sockets: the kernel tells no id with its notices.
const ownID = -1

// group is a multicast group of a netlink protocol.
type group struct{ protocol, number int }

// groups are those that the watch joins.
func groups() []group {
	all := []group{{unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES}}
	for _, number := range []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	} {
		all = append(all, group{unix.NETLINK_ROUTE, number})
	}
	return all
}

// receiveBuffer is the size of each socket's buffer in bytes. A large rule set is about a megabyte
// of notices.
const receiveBuffer = 4 << 20

// Open begins to watch, as yet without namespaces. It needs the capability CAP_NET_BROADCAST.
func Open() (*Watch, error) { return open(receiveBuffer) }

// Blind returns a watch that notices nothing, for a process that may not watch.
func Blind() *Watch {
	return &Watch{pending: newPending(), claims: map[string]interception.NetnsID{}, keys: map[int32]string{}, ids: map[string]int32{}}
}

func open(buffer int) (*Watch, error) {
	w := Blind()
	if err := unix.Stat("/proc/thread-self/ns/net", &w.own); err != nil {
		return nil, fmt.Errorf("watch network namespaces: %w", os.NewSyscallError("stat /proc/thread-self/ns/net", err))
	}
	for _, protocol := range []int{unix.NETLINK_NETFILTER, unix.NETLINK_ROUTE} {
		socket, err := listen(protocol, buffer)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("watch network namespaces: %w", err), w.Close())
		}
		w.sockets = append(w.sockets, socket)
		w.reading.Go(func() { w.read(socket) })
	}
	return w, nil
}

// listen opens a socket that receives the multicasts of all namespaces that have an id here.
func listen(protocol, buffer int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	socket := os.NewFile(uintptr(fd), fmt.Sprintf("netlink %d", protocol))
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), socket.Close())
	}
	// Beyond the system's limit only with CAP_NET_ADMIN in the first user namespace.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer)
	}
	err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1))
	for _, g := range groups() {
		if g.protocol == protocol {
			err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g.number))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up a socket for notices, which needs CAP_NET_BROADCAST: %w", err), socket.Close())
	}
	return socket, nil
}

// Claim reserves a namespace for a key, which Add then watches. A namespace that another key has,
// and a key that has another namespace, is an error. The caller keeps the handle open until Remove:
// the kernel may give the identity of a namespace that has ended to another one.
func (w *Watch) Claim(key string, namespace *interception.Netns) error {
	if err := check(namespace); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claimLocked(key, namespace)
}

func check(namespace *interception.Netns) error {
	if err := namespace.Check(); err != nil {
		return err
	}
	if namespace.File() == nil {
		return interception.ErrNotNetns
	}
	return nil
}

// claimLocked is Claim for a caller that holds mu.
func (w *Watch) claimLocked(key string, namespace *interception.Netns) error {
	for other, id := range w.claims {
		switch same := id == namespace.ID(); {
		case same && other != key:
			return fmt.Errorf("watch %s for %q: it is watched for %q already", namespace, key, other)
		case !same && other == key:
			return fmt.Errorf("watch %s for %q: another namespace is watched for that", namespace, key)
		}
	}
	w.claims[key] = namespace.ID()
	return nil
}

// Add begins to watch a namespace, and claims it unless that was done before. What changes after
// Add has returned is noticed. The errors are those of Claim, and the kernel's.
func (w *Watch) Add(key string, namespace *interception.Netns) error {
	if err := check(namespace); err != nil {
		return err
	}
	id, err := int32(ownID), error(nil)
	if own := (interception.NetnsID{Device: w.own.Dev, Inode: w.own.Ino}); len(w.sockets) > 0 && namespace.ID() != own {
		id, err = identify(namespace.File())
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w", namespace, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.claimLocked(key, namespace); err != nil || len(w.sockets) == 0 {
		return err
	}
	w.keys[id], w.ids[key] = key, id
	return nil
}

// identify returns the id of a namespace in this one, and gives it one if it has none. The kernel
// forgets it with the namespace.
func identify(namespace *os.File) (id int32, err error) {
	raw, err := namespace.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failure error
	err = raw.Control(func(fd uintptr) {
		const choose = -1
		if failure = netlink.SetNetNsIdByFd(int(fd), choose); failure != nil && !errors.Is(failure, unix.EEXIST) {
			return
		}
		var found int
		found, failure = netlink.GetNetNsIdByFd(int(fd))
		id = int32(found)
	})
	if err = errors.Join(err, failure); err == nil && id < 0 {
		err = errors.New("the kernel gave it no id")
	}
	return id, err
}

// Remove ends the watch of a namespace. An unknown key changes nothing. The namespace keeps its id
// as long as it lives: the kernel cannot take it back.
func (w *Watch) Remove(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.claims, key)
	if id, watched := w.ids[key]; watched {
		delete(w.keys, id)
		delete(w.ids, key)
	}
}

// Next waits until something has changed in a watched namespace. It returns the cause of a context
// that ends, and [os.ErrClosed] for a closed watch.
func (w *Watch) Next(ctx context.Context) (Changed, error) { return w.pending.next(ctx) }

// Close ends the watch.
func (w *Watch) Close() error {
	w.fail(os.ErrClosed)
	var errs []error
	for _, socket := range w.sockets {
		errs = append(errs, socket.Close())
	}
	w.reading.Wait()
	return errors.Join(errs...)
}

// fail makes Next return an error, unless it does already.
func (w *Watch) fail(err error) {
	w.pending.add(func() {
		if w.pending.failure == nil {
			w.pending.failure = err
		}
	})
}

// read reads notices until the socket is closed.
func (w *Watch) read(socket *os.File) {
	raw, err := socket.SyscallConn()
	if err != nil {
		w.fail(err)
		return
	}
	// The notices themselves are not looked at: of each one, the namespace's id is enough.
	data, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	for {
		var n int
		var failure error
		err := raw.Read(func(fd uintptr) bool {
			for failure = unix.EINTR; errors.Is(failure, unix.EINTR); {
				_, n, _, _, failure = unix.Recvmsg(int(fd), data, control, 0)
			}
			return !errors.Is(failure, unix.EAGAIN)
		})
		switch {
		case errors.Is(failure, unix.ENOBUFS):
			w.pending.add(func() { w.pending.lost = true })
		case err != nil || failure != nil:
			w.fail(fmt.Errorf("read notices: %w", errors.Join(err, failure)))
			return
		default:
			w.notice(control[:n])
		}
	}
}

// notice notes the namespace that a notice is about.
func (w *Watch) notice(control []byte) {
	id, found := idOf(control)
	if !found {
		id = ownID
	}
	w.mu.Lock()
	key, watched := w.keys[id]
	w.mu.Unlock()
	if watched {
		w.pending.add(func() { w.pending.keys[key] = true })
	}
}

// idOf returns the id of a namespace from the control data of a message.
func idOf(control []byte) (id int32, found bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_NETLINK && m.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(m.Data) >= 4 {
			return int32(binary.NativeEndian.Uint32(m.Data)), true
		}
	}
	return 0, false
}
