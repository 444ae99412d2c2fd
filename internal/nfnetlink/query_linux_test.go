// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func listTables(t *testing.T, s *Socket) [][]byte {
	t.Helper()
	tables, err := s.Query(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, unix.NFPROTO_INET, func(*Attributes) {})
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// TestQueryList covers an empty list, a short one, and one that takes more than one read.
func TestQueryList(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	if got := listTables(t, s); len(got) != 0 {
		t.Errorf("got %d tables of none", len(got))
	}
	names := make([]string, 2000)
	for i := range names {
		names[i] = fmt.Sprintf("table-%d", i)
	}
	if err := s.Commit(addTables(0, names...)); err != nil {
		t.Fatal(err)
	}
	if got := listTables(t, s); len(got) != len(names) {
		t.Errorf("got %d tables of %d", len(got), len(names))
	}
}

func TestQueryRefused(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	for kind, flags := range map[uint8]uint16{unix.NFT_MSG_GETTABLE: 0, unix.NFT_MSG_GETSETELEM: unix.NLM_F_DUMP} {
		_, err := s.Query(unix.NFNL_SUBSYS_NFTABLES, kind, flags, unix.NFPROTO_INET, func(a *Attributes) {
			a.Text(unix.NFTA_SET_ELEM_LIST_TABLE, "none") // as NFTA_TABLE_NAME
			if flags != 0 {
				a.Text(unix.NFTA_SET_ELEM_LIST_SET, "none")
			}
		})
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Errno != unix.ENOENT {
			t.Errorf("message %d: got %v, want ENOENT", kind, err)
		}
	}
	if err := s.Commit(addTables(unix.NLM_F_EXCL, "one")); err != nil {
		t.Errorf("the socket is of no use after a refusal: %v", err)
	}
	_, err := s.Query(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, 0, unix.NFPROTO_INET, func(a *Attributes) {
		a.Bytes(unix.NFTA_TABLE_NAME, make([]byte, 1<<16))
	})
	if err == nil {
		t.Error("an attribute that is too long is no error")
	}
}

// TestGeneration commits a batch on the current generation, and one on an earlier generation.
func TestGeneration(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	before, err := s.Generation()
	if err != nil {
		t.Fatal(err)
	}
	on := func(generation uint32, table string) error {
		b := NewBatch(unix.NFNL_SUBSYS_NFTABLES)
		b.OnGeneration(generation)
		b.Message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, unix.NFPROTO_INET)
		b.Text(unix.NFTA_TABLE_NAME, table)
		return s.Commit(b)
	}
	if err := on(before, "one"); err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if err := on(before, "two"); !errors.As(err, &refused) || refused.Errno != unix.ERESTART || refused.Message != -1 {
		t.Errorf("on an old generation: got %v, want ERESTART about the batch", err)
	}
	if exists(t, s, "two") {
		t.Error("the refused batch was committed")
	}
	if after, err := s.Generation(); err != nil || after == before {
		t.Errorf("got generation %d and %v, it was %d before", after, err, before)
	}
}
