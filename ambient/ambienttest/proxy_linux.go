// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient/zds"
)

// Proxy is a stand-in for ztunnel. While the agent is away it serves the pods that it knows, as
// ztunnel does, and tries to connect again.
type Proxy struct {
	options ProxyOptions
	cancel  context.CancelFunc
	running sync.WaitGroup
	relayed atomic.Int64
	done    chan struct{} // closed when it follows no agent any more

	obeying sync.Mutex // requests of two connections are obeyed one after the other
	mu      sync.Mutex
	pods    map[string]*pod // by UID
	refused map[string]int  // how many times each was
	failure error
}

// retry is the time between two attempts to connect.
const retry = 10 * time.Millisecond

// StartProxy begins to connect to the agent. The caller must close the proxy.
func StartProxy(o ProxyOptions) (*Proxy, error) {
	if err := o.Numbers.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{options: o, cancel: cancel, done: make(chan struct{}), pods: map[string]*pod{}, refused: map[string]int{}}
	p.running.Go(func() {
		var following sync.WaitGroup
		following.Go(func() { p.run(ctx) })
		if o.Faults.Twice {
			following.Go(func() { p.run(ctx) })
		}
		following.Wait()
		close(p.done)
	})
	return p, nil
}

// Done is closed when the proxy follows no agent any more: when it is closed or drained, or, by
// Faults.Exit, with all that it has served.
func (p *Proxy) Done() <-chan struct{} { return p.done }

// Close ends the proxy with all its connections. It returns the first breach of the protocol by the
// agent.
func (p *Proxy) Close() error {
	p.cancel()
	p.running.Wait()
	p.remove(everyPod)
	return p.failure
}

// LoseListeners closes the listeners of some pods, or of all if none is named, and the proxy does
// not notice.
func (p *Proxy) LoseListeners(uids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, pod := range p.pods {
		if len(uids) == 0 || slices.Contains(uids, uid) {
			pod.closeListeners()
		}
	}
}

// Drain ends the proxy as ztunnel ends on SIGTERM. It leaves the agent
// (src/inpod/workloadmanager.rs at ec12059), closes all listeners, and waits until the connections
// have ended or the context has: then it cuts them off (src/drain.rs at 1b39642). Meanwhile a proxy
// that shares the ports takes new connections. The caller must close the proxy.
func (p *Proxy) Drain(ctx context.Context) {
	p.cancel()
	p.running.Wait()
	p.mu.Lock()
	draining := p.pods
	for _, pod := range draining {
		pod.closeListeners()
	}
	p.pods = map[string]*pod{}
	p.mu.Unlock()
	var drains sync.WaitGroup
	for uid, pod := range draining {
		drains.Go(func() {
			pod.drain(ctx)
			pod.close()
			p.options.observe(Event{Kind: Ended, Workload: zds.Workload{UID: uid}})
		})
	}
	drains.Wait()
}

// Serves reports whether the proxy has its listeners in a pod's namespace.
func (p *Proxy) Serves(uid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods[uid] != nil
}

// Relayed returns how many connections the proxy has begun to relay so far, also to destinations
// that have refused.
func (p *Proxy) Relayed() int { return int(p.relayed.Load()) }

// run connects to the agent again and again until the context ends.
func (p *Proxy) run(ctx context.Context) {
	for ctx.Err() == nil {
		agent, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: p.options.Socket, Net: "unixpacket"})
		if err == nil {
			stop := context.AfterFunc(ctx, func() { _ = agent.Close() }) // it ends the reads
			p.options.observe(Event{Kind: Connected})
			err := p.follow(ctx, agent)
			p.fail(err)
			p.options.observe(Event{Kind: Disconnected, Err: err})
			stop()
			_ = agent.Close() // nothing more is said
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

// fail records the first breach of the protocol.
func (p *Proxy) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil {
		p.failure = err
	}
}

// snapshot is what the agent has told of since the connection began, and nil when it is complete.
type snapshot map[string]bool

// follow does what the agent says until the connection ends. The error is a breach of the protocol.
func (p *Proxy) follow(ctx context.Context, agent *net.UnixConn) error {
	faults := p.options.Faults
	if !p.greet(agent) {
		return nil
	}
	seen := snapshot{}
	for requests := 1; ; requests++ {
		request, namespace, err := receive(agent)
		if err != nil || request.Kind == 0 {
			return err
		}
		refusal, err := p.obey(request, namespace, &seen)
		if err != nil {
			return err
		}
		if requests == faults.HangUpAfter && faults.Exit {
			p.remove(everyPod) // before the agent learns of it
			p.cancel()
		}
		if requests == faults.HangUpAfter || !faults.NoAck && !p.answer(ctx, agent, refusal) {
			return nil
		}
	}
}

// greet begins a connection, and reports whether the agent is still there.
func (p *Proxy) greet(agent *net.UnixConn) bool {
	if !p.options.Faults.NoHello {
		if _, err := agent.Write(zds.Hello{Version: zds.Version1}.Marshal()); err != nil {
			return false
		}
	}
	return !p.options.Faults.Unasked || answer(agent, "") == nil
}

// answer answers a request, late if the proxy is to, and reports whether the agent is still there.
func (p *Proxy) answer(ctx context.Context, agent *net.UnixConn, refusal string) bool {
	if late := p.options.Faults.LateAck; late > 0 {
		select {
		case <-time.After(late):
		case <-ctx.Done():
			return false
		}
	}
	return answer(agent, refusal) == nil
}

// answer acknowledges a request, or refuses it.
func answer(agent *net.UnixConn, refusal string) error {
	ack, err := zds.Ack{Error: refusal}.Marshal()
	if err == nil {
		_, err = agent.Write(ack)
	}
	return err
}

// receive returns the next request, with the namespace that came with it; a zero request when the
// connection has ended.
func receive(agent *net.UnixConn) (zds.Request, *os.File, error) {
	const descriptors = 4
	data, control := make([]byte, zds.MaxMessage), make([]byte, unix.CmsgSpace(4*descriptors))
	n, m, flags, _, err := agent.ReadMsgUnix(data, control)
	if err != nil || n == 0 {
		return zds.Request{}, nil, nil //nolint:nilerr // the agent is gone
	}
	files, err := received(control[:m])
	request, parseErr := zds.ParseRequest(data[:n])
	switch err = errors.Join(err, parseErr); {
	case err != nil:
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("the agent's message is too long")
	case len(files) != map[bool]int{true: 1}[request.Kind == zds.KindAdd]:
		err = fmt.Errorf("the agent sent %d descriptors with %s", len(files), request.Kind)
	case len(files) == 1:
		return request, files[0], nil
	}
	for _, file := range files {
		_ = file.Close() // nothing was written
	}
	return request, nil, err
}

func received(control []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	for i := range messages {
		descriptors, parseErr := unix.ParseUnixRights(&messages[i])
		err = errors.Join(err, parseErr)
		for _, descriptor := range descriptors {
			unix.CloseOnExec(descriptor)
			files = append(files, os.NewFile(uintptr(descriptor), "network namespace"))
		}
	}
	return files, err
}

// obey does what one request says, or returns why it refuses. The error is a breach of the
// protocol.
func (p *Proxy) obey(request zds.Request, namespace *os.File, seen *snapshot) (refusal string, err error) {
	p.obeying.Lock()
	defer p.obeying.Unlock()
	uid, told := request.Workload.UID, *seen
	complete := told == nil
	switch {
	case request.Kind == zds.KindAdd:
		if !complete {
			told[uid] = true
		}
		if refusal = p.add(request.Workload, namespace); refusal != "" {
			p.options.observe(Event{Kind: Refused, Workload: request.Workload, Err: errors.New(refusal)})
		}
		return refusal, nil
	case complete != (request.Kind == zds.KindDel):
		return "", fmt.Errorf("the agent sent %s, and its snapshot was complete: %t", request.Kind, complete)
	case request.Kind == zds.KindDel:
		p.remove(func(other string) bool { return other == uid })
	case request.Kind == zds.KindKeep:
		told[uid] = true
	case request.Kind == zds.KindSnapshotSent:
		p.remove(func(other string) bool { return !told[other] })
		*seen = nil
		p.options.observe(Event{Kind: Complete})
	}
	return "", nil
}

// add serves a pod, unless the proxy serves it in this namespace already.
func (p *Proxy) add(w zds.Workload, namespace *os.File) (refusal string) {
	if p.options.Refuse != nil {
		if refusal = p.options.Refuse(w); refusal != "" {
			_ = namespace.Close() // nothing was written
			return refusal
		}
	}
	p.mu.Lock()
	former := p.pods[w.UID]
	again := p.refused[w.UID] < p.options.Faults.RefuseFirst
	if again {
		p.refused[w.UID]++
	}
	p.mu.Unlock()
	if again {
		_ = namespace.Close() // likewise
		return fmt.Sprintf("pod %s is refused %d times", w.UID, p.options.Faults.RefuseFirst)
	}
	if former != nil && former.isIn(namespace) {
		_ = namespace.Close() // likewise
		return ""
	}
	p.remove(func(other string) bool { return other == w.UID })
	opened, err := open(namespace, p.options, &p.relayed)
	if err != nil {
		return err.Error()
	}
	p.mu.Lock()
	p.pods[w.UID] = opened
	p.mu.Unlock()
	p.options.observe(Event{Kind: Served, Workload: w})
	return ""
}

// remove ends what the proxy does for some pods, and cuts their connections off.
func (p *Proxy) remove(which func(uid string) bool) {
	p.mu.Lock()
	ended := map[string]*pod{}
	for uid, pod := range p.pods {
		if which(uid) {
			ended[uid] = pod
			delete(p.pods, uid)
		}
	}
	p.mu.Unlock()
	for uid, pod := range ended {
		pod.close()
		p.options.observe(Event{Kind: Ended, Workload: zds.Workload{UID: uid}})
	}
}

func everyPod(string) bool { return true }
