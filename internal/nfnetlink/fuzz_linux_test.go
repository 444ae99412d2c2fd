// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

// FuzzSocket gives answers of any form to a query, a request for the generation, and a transaction.
func FuzzSocket(f *testing.F) {
	f.Add(kerneltest.Messages(make([]byte, 16), unix.NFNL_SUBSYS_NFTABLES<<8, []byte{0, 0, 0, 0, 8, 0, 1, 0, 0, 0, 0, 9})[0])
	f.Add(errorMessage(2, unix.EINVAL, why()...))
	f.Add(errorMessage(2, 0))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, answer []byte) {
		s, err := Dial(kerneltest.Answering(func(datagram []byte) [][]byte {
			numbered := bytes.Clone(answer)
			if len(answer) >= 12 && datagram[11] != 0 { // a query's number is a large one
				copy(numbered[8:12], datagram[8:12])
			}
			return [][]byte{numbered}
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		if messages, err := s.Query(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, 0, 0, func(*Attributes) {}); err != nil && messages != nil {
			t.Errorf("messages and %v", err)
		}
		if generation, err := s.Generation(); err != nil && generation != 0 {
			t.Errorf("generation %d and %v", generation, err)
		}
		_ = s.Commit(addTables(0, "one"))
	})
}
