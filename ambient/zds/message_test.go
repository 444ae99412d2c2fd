// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// TestWireVectors pins messages that were encoded by hand after the protocol's description.
func TestWireVectors(t *testing.T) {
	t.Parallel()
	for text, request := range map[string]Request{
		"1a00":            {Kind: KindSnapshotSent},
		"1203" + "120175": {Kind: KindDel, Workload: Workload{UID: "u"}},
		"2a03" + "0a0175": {Kind: KindKeep, Workload: Workload{UID: "u"}},
		"0a0e" + "0a0175" + "1209" + "0a016e" + "120173" + "1a0161": {
			Kind: KindAdd, Workload: Workload{UID: "u", Name: "n", Namespace: "s", ServiceAccount: "a"},
		},
	} {
		data, err := request.Marshal()
		if got := hex.EncodeToString(data); err != nil || got != text {
			t.Errorf("%s: %s, %v, want %s", request.Kind, got, err, text)
		}
		if got, err := ParseRequest(data); err != nil || got != request {
			t.Errorf("%s: parses as %+v, %v", text, got, err)
		}
	}
	if got := hex.EncodeToString(Hello{Version: Version1}.Marshal()); got != "0801" {
		t.Errorf("hello: %s", got)
	}
	for text, ack := range map[string]Ack{"0a00": {}, "0a040a026e6f": {Error: "no"}} {
		data, err := ack.Marshal()
		if got := hex.EncodeToString(data); err != nil || got != text {
			t.Errorf("%+v: %s, %v, want %s", ack, got, err, text)
		}
		if got, err := ParseAck(data); err != nil || got != ack {
			t.Errorf("%s: parses as %+v, %v", text, got, err)
		}
	}
}

// TestUnknownFieldsAreIgnored parses messages of a later version.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"1203120175" + "4a0178", "4005" + "1203120175", "1206" + "120175" + "1a0178", "1208" + "120175" + "25" + "00000000",
		"120c" + "120175" + "21" + "0000000000000000",
	} {
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseRequest(data); err != nil || got.Kind != KindDel || got.Workload.UID != "u" {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if got, err := ParseHello([]byte{8, 2, 0x12, 1, 'x'}); err != nil || got.Version != 2 {
		t.Errorf("a hello of a later version: %+v, %v", got, err)
	}
}

func TestInvalidMessages(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "1a", "12", "1205120175", "12031202", "00", "0f", "ffffffffffffffffffff01", "1200", "0a00", "2200", "0b", "15000000", "0900", "08",
		"0a03" + "0a0175",
	} {
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseRequest(data); !errors.Is(err, ErrMessage) || got != (Request{}) {
			t.Errorf("%q: %+v, %v, want ErrMessage", text, got, err)
		}
	}
	if _, err := ParseAck(nil); !errors.Is(err, ErrMessage) {
		t.Errorf("an empty answer: %v, want ErrMessage", err)
	}
	if _, err := ParseHello([]byte{8}); !errors.Is(err, ErrMessage) {
		t.Errorf("half a hello: %v, want ErrMessage", err)
	}
	if _, err := (Request{}).Marshal(); !errors.Is(err, ErrMessage) {
		t.Errorf("the zero request: %v, want ErrMessage", err)
	}
}

// TestLongestNames adds the longest names that Kubernetes allows, and longer ones.
func TestLongestNames(t *testing.T) {
	t.Parallel()
	w := Workload{strings.Repeat("u", 36), strings.Repeat("n", 253), strings.Repeat("s", 63), strings.Repeat("a", 253)}
	if data, err := (Request{KindAdd, w}).Marshal(); err != nil || len(data) > MaxMessage {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	w.Name = strings.Repeat("n", MaxMessage)
	if data, err := (Request{KindAdd, w}).Marshal(); !errors.Is(err, ErrMessage) || data != nil {
		t.Errorf("%d bytes, %v, want ErrMessage", len(data), err)
	}
	if data, err := (Ack{strings.Repeat("e", MaxMessage)}).Marshal(); !errors.Is(err, ErrMessage) || data != nil {
		t.Errorf("%d bytes, %v, want ErrMessage", len(data), err)
	}
}

// FuzzMessages parses any bytes. What parses must survive a round trip.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{"", "\x1a\x00", "\x12\x03\x12\x01u", "\x0a\x04\x0a\x02no", "\x08\x01", "\x0a\x0e\x0a\x01u\x12\x09\x0a\x01n\x12\x01s\x1a\x01a"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		if r, err := ParseRequest(data); err == nil {
			again, err := r.Marshal()
			if err != nil && len(data) <= MaxMessage {
				t.Fatalf("%x parses as %+v, which does not fit: %v", data, r, err)
			}
			if parsed, parseErr := ParseRequest(again); err == nil && (parseErr != nil || parsed != r) {
				t.Fatalf("%+v becomes %+v, %v", r, parsed, parseErr)
			}
		}
		if a, err := ParseAck(data); err == nil {
			if again, err := a.Marshal(); err == nil {
				if parsed, err := ParseAck(again); err != nil || parsed != a {
					t.Fatalf("%+v becomes %+v, %v", a, parsed, err)
				}
			}
		}
		if h, err := ParseHello(data); err == nil {
			if parsed, err := ParseHello(h.Marshal()); err != nil || parsed != h {
				t.Fatalf("%+v becomes %+v, %v", h, parsed, err)
			}
		}
		if !bytes.Equal(before, data) {
			t.Fatal("the parsers changed their input")
		}
	})
}
