// The headers that the official evaluation puts in front of every C++ program, and no others:
// compiled once, so that they cost nothing.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>
