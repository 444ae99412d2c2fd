// SPDX-License-Identifier: Apache-2.0

package zds

import "time"

// Status says which proxies are connected to a server. It is zero until the first one connects.
type Status struct {
	// Connections is how many proxies are connected. During a rolling update of the proxy there are
	// two.
	Connections int
	// Connected is when the newest one of them said hello; zero if none is connected.
	Connected time.Time
	// Lost is when a connection ended last; zero if none has ended since its hello.
	Lost time.Time
	// Err is why a connection ended last, even if that was before its hello; nil if none has ended.
	Err error
}

// Status says which proxies are connected to the server.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{Connections: len(s.live), Lost: s.lost, Err: s.ended}
	if newest := s.newest(); newest != nil {
		status.Connected = newest.since
	}
	return status
}
