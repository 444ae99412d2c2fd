// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Side is an end of a connection.
type Side int

// The sides.
const (
	// Opener is the side that opened the connection: the probe's socket.
	Opener Side = iota
	// Taker is the side that accepted it.
	Taker
)

// String returns the side in words.
func (s Side) String() string {
	if s == Taker {
		return "taker"
	}
	return "opener"
}

// end is one end of a connection in the harness.
type end interface {
	io.ReadWriteCloser
	syscall.Conn
	SetDeadline(time.Time) error
}

// Connection is a TCP connection that lives until it is closed or breaks. [Connection.Say] finds
// out what happens to it when rules are applied.
type Connection struct {
	// Probe opened the connection, and Observation is where it arrived.
	Probe       Probe
	Observation Observation
	// Local is the opener's own address.
	Local netip.AddrPort

	ends    [2]end
	silence time.Duration
	settle  func(context.Context) error // Pod.Settle's
}

// Connect opens the connection of a TCP probe and keeps it; the caller must close it. It is an
// error if the probe is not accepted.
func (p *Pod) Connect(ctx context.Context, probe Probe) (*Connection, error) {
	err := probe.validate()
	if err == nil && probe.Protocol != TCP {
		err = fmt.Errorf("%w: Protocol is %s, and only TCP has connections", ErrProbe, probe.Protocol)
	}
	if err != nil {
		return nil, err
	}
	c, err := p.network.keep(ctx, probe, p.options.DropAfter)
	if err != nil {
		return nil, fmt.Errorf("connect: %s: %w", probe, err)
	}
	return c, nil
}

// Say sends data from one side. The result is Accepted if the other side receives it. Otherwise the
// connection is broken: Refused if the speaker got a reset, Dropped if it learned nothing.
func (c *Connection) Say(ctx context.Context, speaker Side) (Verdict, error) {
	return c.say(ctx, speaker, c.silence)
}

func (c *Connection) say(ctx context.Context, speaker Side, silence time.Duration) (Verdict, error) {
	from, to := c.ends[speaker], c.ends[1-speaker]
	if err := from.SetDeadline(time.Time{}); err != nil {
		return 0, err
	}
	said := make([]byte, 16)
	_, _ = rand.Read(said) // never fails (crypto/rand)
	if _, err := from.Write(said); err != nil {
		return broken(err)
	}
	heard, err := c.hear(ctx, to, len(said), silence)
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err == nil && string(said) == string(heard):
		return Accepted, nil
	case err == nil:
		return 0, errors.New("the other side heard something else")
	}
	if verdict, err := broken(err); err != nil {
		return verdict, err
	}
	// The hearer received nothing. Did the speaker get a reset?
	if _, err = c.hear(ctx, from, 1, 0); ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return broken(err)
}

// hear reads so many bytes from an end. It gives up when nothing has come for the time of the
// silence and no packet is on its way.
func (c *Connection) hear(ctx context.Context, at end, bytes int, silence time.Duration) ([]byte, error) {
	heard := make([]byte, bytes)
	if err := at.SetDeadline(time.Now().Add(silence)); err != nil {
		return nil, err
	}
	n, err := io.ReadFull(at, heard)
	if !errors.Is(err, os.ErrDeadlineExceeded) || n > 0 {
		return heard, err
	}
	if err := c.settle(ctx); err != nil {
		return heard, fmt.Errorf("wait for packets on their way: %w", err)
	}
	// Read once more: only the kernel's present state counts.
	if n, err = pending(at, heard); err == nil && n < bytes {
		err = io.ErrUnexpectedEOF
		if n == 0 {
			err = io.EOF
		}
	}
	return heard, err
}

// broken returns what an error of the speaker's socket means for its connection.
func broken(err error) (Verdict, error) {
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		return Refused, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Dropped, nil
	case err == nil:
		return 0, errors.New("the speaker heard what the listener did not say")
	}
	return 0, err
}

// Close ends the connection.
func (c *Connection) Close() error { return errors.Join(c.ends[Opener].Close(), c.ends[Taker].Close()) }
