// SPDX-License-Identifier: Apache-2.0

package footprint

import "testing"

func TestUntouched(t *testing.T) {
	t.Parallel()
	const (
		file  = "/usr/bin/x"
		rest  = "Size:               1024 kB\nRss:                 512 kB\nAnonymous:             0 kB\nSwap:                  0 kB\nVmFlags: rd ex mr mw me\n"
		dirty = "Size:               1024 kB\nRss:                 512 kB\nAnonymous:             4 kB\nSwap:                  0 kB\nVmFlags: rd mr mw me\n"
		gone  = "Size:               1024 kB\nRss:                 512 kB\nAnonymous:             0 kB\nSwap:                  8 kB\nVmFlags: rd mr mw me\n"
	)
	for text, want := range map[string]int{
		"00400000-00500000 r-xp 00000000 08:01 7 /usr/bin/x\n" + rest:                                                                    1,
		"00400000-00500000 r-xp 00000000 08:01 7    /usr/bin/x\n" + rest + "00500000-00600000 r--p 00100000 08:01 7 /usr/bin/x\n" + rest: 2,
		"00500000-00600000 r--p 00100000 08:01 7 /usr/bin/x\n" + dirty:                                                                   0, // written by a linker
		"00500000-00600000 r--p 00100000 08:01 7 /usr/bin/x\n" + gone:                                                                    0,
		"00500000-00600000 r--p 00100000 08:01 7 /usr/bin/x\n" + dirty + "00600000-00700000 r-xp 00000000 08:01 7 /usr/bin/x\n" + rest:   1,
		"00600000-00700000 rw-p 00200000 08:01 7 /usr/bin/x\n" + rest:                                                                    0,
		"00600000-00700000 r--s 00200000 08:01 7 /usr/bin/x\n" + rest:                                                                    0,
		"00400000-00500000 r-xp 00000000 08:01 8 /usr/bin/y\n" + rest:                                                                    0,
		"00400000-00500000 r-xp 00000000 00:00 0\n" + rest:                                                                               0,
		"00400000-00500000 r-xp 00000000 08:01 7 /usr/bin/x (deleted)\n" + rest:                                                          0,
		"00500000-00400000 r-xp 00000000 08:01 7 /usr/bin/x\n" + rest:                                                                    0,
		"00400000 r-xp 00000000 08:01 7 x /usr/bin/x\n" + rest:                                                                           0,
		"x-y r-xp 00000000 08:01 7 /usr/bin/x\n" + rest:                                                                                  0,
		"": 0,
	} {
		got := untouched([]byte(text), file)
		if len(got) != want {
			t.Errorf("%s\ngot %v, want %d", text, got, want)
		}
		for _, m := range got {
			if m.size != 0x100000 {
				t.Errorf("%s\ngot %v", text, m)
			}
		}
	}
}
