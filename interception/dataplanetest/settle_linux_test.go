// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// TestSettle injects packets that another processor than the sender's receives, later. After each,
// it checks only once, without waiting, whether it has arrived.
func TestSettle(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	handOver(t, pod.network.pod, "lo", eth0)
	keepBusy(t, pod)
	receiver := listenQuietly(t, pod, 9999)
	for _, packet := range []trace.Packet{
		{From: trace.Arrival{Link: eth0}, Src: netip.MustParseAddrPort("192.0.2.9:40000"), Dst: netip.MustParseAddrPort("10.244.1.10:9999")},
		{From: trace.Socket{}, Dst: netip.MustParseAddrPort("127.0.0.1:9999")},
	} {
		packet.Protocol = interception.ProtocolUDP
		for i := range 60 {
			if _, err := pod.Inject(packet); err != nil {
				t.Fatal(err)
			}
			if err := pod.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, _, err := unix.Recvfrom(receiver, make([]byte, 1), unix.MSG_DONTWAIT); err != nil {
				t.Fatalf("%s, number %d has not arrived: %v", packet, i, err)
			}
		}
	}
}

// handOver makes the first two processors receive what comes to the links of a namespace (Receive
// Packet Steering), instead of the sender's processor.
func handOver(t *testing.T, e *endpoint, links ...string) {
	t.Helper()
	done := make(chan error)
	go func() {
		// The thread ends with this goroutine: it has a mount namespace of its own.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Setns(int(e.namespace.File().Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = unix.Mount("sysfs", "/sys", "sysfs", 0, "")
		}
		for _, link := range links {
			if err == nil {
				err = os.WriteFile(filepath.Join("/sys/class/net", link, "queues/rx-0/rps_cpus"), []byte("3"), 0)
			}
		}
		done <- err
	}()
	switch err := <-done; {
	case errors.Is(err, fs.ErrPermission):
		t.Logf("an ordinary user has the sender's processor receive all packets, as it does without being told: %v", err)
	case runtime.NumCPU() == 1 && errors.Is(err, unix.EOVERFLOW): // there is no second processor
	case err != nil:
		t.Fatalf("hand packets over to other processors: %v", err)
	}
}

// keepBusy makes both processors receive packets until the end of the test. Each of the two senders
// has few datagrams under way: a processor drops packets that come when a thousand wait for it
// (net.core.netdev_max_backlog), and would drop the test's as well.
func keepBusy(t *testing.T, pod *Pod) {
	t.Helper()
	const underWay = 50
	ctx, cancel := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	for range 2 {
		fd := listenQuietly(t, pod, 0)
		self, err := unix.Getsockname(fd)
		err = errors.Join(err, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}))
		if err != nil {
			t.Fatal(err)
		}
		senders.Go(func() {
			for ctx.Err() == nil {
				for range underWay {
					_ = unix.Sendto(fd, make([]byte, 1000), 0, self)
				}
				for range underWay {
					_, _, _ = unix.Recvfrom(fd, make([]byte, 1), 0)
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		senders.Wait()
	})
}

// listenQuietly opens a UDP socket in the pod.
func listenQuietly(t *testing.T, pod *Pod, port int) (fd int) {
	t.Helper()
	if err := pod.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return errors.Join(err, unix.Bind(fd, &unix.SockaddrInet4{Port: port}))
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}
